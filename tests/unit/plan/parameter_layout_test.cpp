// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"

#include <set>

#include <hetero/model/gpt.hpp>
#include <hetero/model/mlp.hpp>
#include <hetero/plan/bucket.hpp>
#include <hetero/plan/parameter_layout.hpp>
#include <hetero/shard/replicated.hpp>

using namespace hetero;

namespace {

struct listed_layer {
  static constexpr bool splits_backward = false;
  std::vector<parameter_spec> specs;
  [[nodiscard]] std::vector<parameter_spec> parameters() const { return specs; }
  [[nodiscard]] shape output_shape(const shape& input) const { return input; }
  [[nodiscard]] std::vector<tensor_spec> saved(const saved_request&) const { return {}; }
  [[nodiscard]] double forward_flops(const shape&) const { return 0; }
  void forward(execution&, layer_parameters, tensor_view, tensor_view, const saved_state&) const {}
  void backward_input(execution&, layer_parameters, tensor_view, tensor_view, const saved_state&,
                      layer_gradients) const {}
  void backward_weight(execution&, layer_parameters, tensor_view, const saved_state&, layer_gradients) const {}
};
static_assert(layer<listed_layer>);

/// A model of any parameters.
struct listed_model {
  std::vector<listed_layer> layers;
  [[nodiscard]] std::string name() const { return "listed"; }
  [[nodiscard]] std::size_t size() const { return layers.size(); }
  [[nodiscard]] shape input_shape(std::size_t n) const { return {n, 1}; }
  [[nodiscard]] std::string unit_name(std::size_t i) const { return "unit." + std::to_string(i); }
  [[nodiscard]] int loss() const { return 0; }
  template <class F> void visit(std::size_t i, F&& f) const { f(layers[i]); }
};
static_assert(model<listed_model>);

}  // namespace

TEST_CASE("a layout holds every parameter once, aligned, trained ones first", "[plan]") {
  const listed_model m{{{{{"a", {3, 5}}, {"running", {7}, {}, true, false}}}, {{{"b", {16}}}}, {{}}, {{{"c", {1}}}}}};
  const auto layout = layout_of(m);
  REQUIRE(layout.entries.size() == 4);
  REQUIRE(layout.at("a").offset == 0);
  REQUIRE(layout.at("b").offset == 16);
  REQUIRE(layout.at("c").offset == 32);
  REQUIRE(layout.trainable_elements == 48);
  REQUIRE(layout.at("running").offset == 48);
  REQUIRE(layout.elements == 64);
  REQUIRE(layout.at("c").first_layer == 3);
  REQUIRE(layout.of_layer.size() == 4);
  REQUIRE(layout.of_layer[0].size() == 2);
  REQUIRE(layout.of_layer[2].empty());
  REQUIRE_THROWS_WITH(layout.at("d"), ContainsSubstring("invalid_argument") && ContainsSubstring("'d'"));
}

TEST_CASE("a tied parameter is one tensor, complete with its first layer", "[plan]") {
  const gpt m{{.layers = 2, .heads = 2, .width = 8, .context = 4, .vocabulary = 9}};
  const auto layout = layout_of(m);
  std::set<std::string> names;
  std::size_t elements = 0;
  for (const auto& entry : layout.entries) {
    REQUIRE(names.insert(entry.spec.name).second);
    REQUIRE(entry.offset % 16 == 0);
    elements += entry.count();
  }
  REQUIRE(elements == m.num_parameters());
  const auto& table = layout.at("embedding.token");
  REQUIRE(table.first_layer == 0);
  bool in_head = false;
  for (const auto index : layout.of_layer.back())
    in_head = in_head || layout.entries[index].spec.name == "embedding.token";
  REQUIRE(in_head);
  const listed_model torn{{{{{"a", {3, 5}}}}, {{{"a", {5, 3}}}}}};
  REQUIRE_THROWS_WITH(layout_of(torn), ContainsSubstring("invalid_shape") && ContainsSubstring("tied"));
}

TEST_CASE("buckets cover the gradient once, in the order of the backward pass, and cut no parameter", "[plan]") {
  const gpt tied{{.layers = 3, .heads = 2, .width = 8, .context = 4, .vocabulary = 9}};
  const mlp plain{{.widths = {5, 40, 3}}};
  for (const auto& layout : {layout_of(tied), layout_of(plain)}) {
    for (const std::size_t bytes : {std::size_t{1}, std::size_t{500}, std::size_t{2000}, std::size_t{1} << 30U}) {
      const auto buckets = make_buckets(layout, dtype::f32, bytes);
      std::size_t end = layout.trainable_elements;
      for (std::size_t i = 0; i < buckets.size(); ++i) {
        REQUIRE(buckets[i].end == end);
        REQUIRE(buckets[i].begin < end);
        end = buckets[i].begin;
        for (const auto& entry : layout.entries) {
          const bool inside = entry.offset >= buckets[i].begin && entry.end() <= buckets[i].end;
          REQUIRE((inside || entry.end() <= buckets[i].begin || entry.offset >= buckets[i].end));
          if (inside) REQUIRE(buckets[i].ready_layer <= entry.first_layer);  // complete by then
        }
        if (i > 0) REQUIRE(buckets[i].ready_layer <= buckets[i - 1].ready_layer);
        if (i + 1 < buckets.size()) REQUIRE((buckets[i].end - buckets[i].begin) * 4 >= bytes);
      }
      REQUIRE(end == 0);
    }
    REQUIRE(make_buckets(layout, dtype::f32, 1).size() == layout.entries.size());
    REQUIRE(make_buckets(layout, dtype::f32, std::size_t{1} << 30U).size() == 1);
    REQUIRE(make_buckets(layout, dtype::f64, 2000).size() >= make_buckets(layout, dtype::f32, 2000).size());
  }
}

TEST_CASE("replicated sharding gives each element one owner and inserts nothing", "[shard]") {
  const auto layout = layout_of(mlp{{.widths = {5, 40, 3}}});
  for (const std::uint32_t ranks : {1U, 2U, 3U, 5U, 7U}) {
    plan p;
    p.roles.assign(ranks, rank_role::worker);
    std::size_t next = 0;
    for (std::uint32_t r = 0; r < ranks; ++r) {
      const element_range mine = replicated_sharding{}.owned(layout, p, rank_id{r});
      REQUIRE(mine.begin == next);
      next = mine.end;
      REQUIRE(mine.count() <= layout.trainable_elements / ranks + 1);
      REQUIRE(replicated_sharding{}.state_held(layout, p, rank_id{r}) == element_range{0, layout.trainable_elements});
    }
    REQUIRE(next == layout.trainable_elements);
    const program actions{{.kind = action_kind::step}};
    REQUIRE(replicated_sharding{}.insert(actions, layout, p, rank_id{0}) == actions);
  }
}
