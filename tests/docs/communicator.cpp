// SPDX-License-Identifier: Apache-2.0
// docs: the snippets of docs/concepts/communicator.md
#include <hetero/comm/compressed.hpp>
#include <hetero/comm/counted.hpp>
#include <hetero/comm/group_cache.hpp>
#include <hetero/comm/hierarchical.hpp>
#include <hetero/comm/probe.hpp>
#include <hetero/comm/run_ranks.hpp>
#include <hetero/comm/shaped.hpp>
#include <hetero/comm/traced.hpp>

#include <chrono>
#include <cstdio>
#include <stdexcept>
#include <vector>

using namespace std::chrono_literals;

// [islands]
float sum_over_islands(hetero::world& world, int island, std::vector<float>& gradient) {
  // Collective; ranks that pass the same number are close to each other.
  auto islands = hetero::make_hierarchical(world, island);
  islands.all_reduce(hetero::tensor_view{std::span{gradient}}, hetero::reduce_op::sum, hetero::traffic_class::gradient);
  return gradient[0];
}
// [islands]

// [decorators]
double seconds_on_a_slow_link(hetero::world& world, std::vector<float>& values) {
  hetero::counted slow{
      hetero::shaped{world.channel("slow"), hetero::link_shape{.latency = 1ms, .bytes_per_second = 12.5e6}}};
  const auto start = std::chrono::steady_clock::now();
  slow.all_reduce(hetero::tensor_view{std::span{values}}, hetero::reduce_op::sum);
  const std::chrono::duration<double> emulated = std::chrono::steady_clock::now() - start;
  std::printf("%.1f ms emulated for %llu bytes\n", 1e3 * emulated.count(),
              static_cast<unsigned long long>(slow.passed().total().bytes_sent));
  return emulated.count();
}
// [decorators]

// [priorities]
void urgent_first(hetero::world& world, std::vector<float>& last_layer, std::vector<float>& first_layer) {
  hetero::world gradients = world.channel("gradients");
  gradients.set_queue_order(hetero::queue_order::priority);  // collective, and agreed
  // A backward pass finishes the last layer first; the next forward pass needs the first layer first.
  auto late = gradients.all_reduce_async(hetero::tensor_view{std::span{last_layer}}, hetero::reduce_op::sum,
                                         {.traffic = hetero::traffic_class::gradient, .priority = 0});
  auto soon = gradients.all_reduce_async(hetero::tensor_view{std::span{first_layer}}, hetero::reduce_op::sum,
                                         {.traffic = hetero::traffic_class::gradient, .priority = 1});
  soon.wait();  // overtook what was left of the other one
  late.wait();
}
// [priorities]

// [groups]
void sum_in_pairs(hetero::world& world) {
  hetero::group_cache groups{world};
  const hetero::rank_id me = world.rank();
  const hetero::rank_id other{index_of(me) ^ 1U};
  if (index_of(other) >= world.world_size()) return;
  for (int step = 0; step < 3; ++step) {
    // Both ask for the same list: no message, and from the second time on the same handle.
    hetero::world& pair = groups.get(std::vector{std::min(me, other), std::max(me, other)});
    (void)pair.all_reduce(step, hetero::reduce_op::sum);
  }
}
// [groups]

// [probe]
void print_links(hetero::world& world) {
  const hetero::link_report links = hetero::probe(world, {.bandwidth = true});  // collective, equal on every rank
  if (world.rank() == hetero::rank_id{0}) std::printf("%s", to_string(links).c_str());
}
// [probe]

int main() {
  const auto expect = [](bool right) {
    if (!right) throw std::runtime_error{"the page would show what is not so"};
  };
  hetero::run_ranks(4, [&](hetero::world& world, hetero::rank_id rank) {
    std::vector<float> gradient(1000, 1);
    expect(sum_over_islands(world, static_cast<int>(index_of(rank) / 2), gradient) == 4);
    std::vector<float> values(12'500, 1);  // 6 ms for 75 kB
    expect(seconds_on_a_slow_link(world, values) >= 0.006);
    std::vector<float> last(1000, 1), first(10, 1);
    urgent_first(world, last, first);
    expect(last[0] == 4 && first[0] == 4);
    sum_in_pairs(world);
    print_links(world);
  });
}
