// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"

#include <hetero/comm/concepts.hpp>
#include <hetero/comm/world.hpp>

// The smallest model of each concept, and models that are broken in exactly one way.
namespace {

using namespace hetero;

struct minimal {
  rank_id rank() const noexcept { return {}; }
  std::uint32_t world_size() const noexcept { return 1; }
  void send(const tensor_view&, rank_id) {}
  void recv(const tensor_view&, rank_id) {}
  void send_recv(const tensor_view&, rank_id, const tensor_view&, rank_id) {}
  void abort(std::string_view) const noexcept {}
  minimal channel(std::string_view) const { return {}; }
  minimal split(int, int) { return {}; }
  traffic_counters counters() const { return {}; }
};
static_assert(communicator<minimal>);
static_assert(!all_reducer<minimal> && !async_all_reducer<minimal> && !broadcaster<minimal> && !all_gatherer<minimal> &&
              !barrier_capable<minimal>);

struct rank_may_throw : minimal {
  rank_id rank() const { return {}; }
  rank_may_throw channel(std::string_view) const { return {}; }
  rank_may_throw split(int, int) { return {}; }
};
static_assert(!communicator<rank_may_throw>);

struct rank_is_a_number : minimal {
  std::uint32_t rank() const noexcept { return 0; }
  rank_is_a_number channel(std::string_view) const { return {}; }
  rank_is_a_number split(int, int) { return {}; }
};
static_assert(!communicator<rank_is_a_number>);

struct abort_may_throw : minimal {
  void abort(std::string_view) const {}
  abort_may_throw channel(std::string_view) const { return {}; }
  abort_may_throw split(int, int) { return {}; }
};
static_assert(!communicator<abort_may_throw>);

struct channel_of_another_type : minimal {  // inherits minimal's channel
  channel_of_another_type split(int, int) { return {}; }
};
static_assert(!communicator<channel_of_another_type>);

struct cannot_move : minimal {
  cannot_move() = default;
  cannot_move(cannot_move&&) = delete;
  cannot_move channel(std::string_view) const { return {}; }
  cannot_move split(int, int) { return {}; }
};
static_assert(!communicator<cannot_move>);

struct send_says_how_much : minimal {
  int send(const tensor_view&, rank_id) { return 0; }
  send_says_how_much channel(std::string_view) const { return {}; }
  send_says_how_much split(int, int) { return {}; }
};
static_assert(!communicator<send_says_how_much>);

struct reducing : minimal {
  void all_reduce(const tensor_view&, reduce_op) {}
  reducing channel(std::string_view) const { return {}; }
  reducing split(int, int) { return {}; }
};
static_assert(all_reducer<reducing> && !async_all_reducer<reducing>);

struct result {
  void wait() {}
};
struct reducing_behind : reducing {
  result all_reduce_async(const tensor_view&, reduce_op) { return {}; }
  reducing_behind channel(std::string_view) const { return {}; }
  reducing_behind split(int, int) { return {}; }
};
static_assert(async_all_reducer<reducing_behind>);

struct nothing_to_wait_for : reducing {
  void all_reduce_async(const tensor_view&, reduce_op) {}
  nothing_to_wait_for channel(std::string_view) const { return {}; }
  nothing_to_wait_for split(int, int) { return {}; }
};
static_assert(!async_all_reducer<nothing_to_wait_for>);

// One capability each: a model of one concept is a model of no other.
template <class C>
constexpr int parts_capabilities =
    all_gatherer_v<C> + reducer<C> + reduce_scatterer<C> + reduce_scatterer_v<C> + gatherer<C> + gatherer_v<C> +
    scatterer<C> + scatterer_v<C> + all_to_all_capable<C> + all_to_all_v_capable<C> + neighbour_exchanger<C>;
static_assert(parts_capabilities<minimal> == 0 && parts_capabilities<world> == 11);

#define HETERO_TEST_CAPABILITY(name, concept_name, ...) \
  struct name : minimal {                               \
    void __VA_ARGS__ {}                                 \
    name channel(std::string_view) const { return {}; } \
    name split(int, int) { return {}; }                 \
  };                                                    \
  static_assert(concept_name<name> && parts_capabilities<name> == 1)

using counts_span = std::span<const std::size_t>;
HETERO_TEST_CAPABILITY(gathering_uneven, all_gatherer_v,
                       all_gather_v(const tensor_view&, const tensor_view&, counts_span));
HETERO_TEST_CAPABILITY(reducing_to_one, reducer, reduce(const tensor_view&, reduce_op, rank_id));
HETERO_TEST_CAPABILITY(reducing_parts, reduce_scatterer,
                       reduce_scatter(const tensor_view&, const tensor_view&, reduce_op));
HETERO_TEST_CAPABILITY(reducing_uneven, reduce_scatterer_v,
                       reduce_scatter_v(const tensor_view&, const tensor_view&, counts_span, reduce_op));
HETERO_TEST_CAPABILITY(gathering, gatherer, gather(const tensor_view&, const tensor_view&, rank_id));
HETERO_TEST_CAPABILITY(gathering_to_one, gatherer_v,
                       gather_v(const tensor_view&, const tensor_view&, counts_span, rank_id));
HETERO_TEST_CAPABILITY(scattering, scatterer, scatter(const tensor_view&, const tensor_view&, rank_id));
HETERO_TEST_CAPABILITY(scattering_uneven, scatterer_v,
                       scatter_v(const tensor_view&, const tensor_view&, counts_span, rank_id));
HETERO_TEST_CAPABILITY(swapping, all_to_all_capable, all_to_all(const tensor_view&, const tensor_view&));
HETERO_TEST_CAPABILITY(swapping_uneven, all_to_all_v_capable,
                       all_to_all_v(const tensor_view&, counts_span, const tensor_view&, counts_span));
HETERO_TEST_CAPABILITY(neighbourly, neighbour_exchanger, neighbour_exchange(std::span<const neighbour>));
#undef HETERO_TEST_CAPABILITY

// Counts that are not of std::size_t would be copied or cut at every call.
struct counts_by_int : minimal {
  void all_gather_v(const tensor_view&, const tensor_view&, std::span<const int>) {}
  counts_by_int channel(std::string_view) const { return {}; }
  counts_by_int split(int, int) { return {}; }
};
static_assert(!all_gatherer_v<counts_by_int>);

static_assert(!std::is_copy_constructible_v<world>, "one handle per thread of control");
static_assert(std::is_nothrow_move_constructible_v<world>);

}  // namespace

TEST_CASE("the communicator archetypes compile", "[comm]") { SUCCEED(); }
