// SPDX-License-Identifier: Apache-2.0
#include "unit/device/kernel_test.hpp"

#include <hetero/device/cpu/embedding.hpp>

using namespace hetero;
using namespace hetero::test::kernels;
using hetero::detail::cpu::run;

namespace {

[[nodiscard]] tensor<std::int32_t> random_ids(std::size_t rows, std::size_t vocabulary) {
  tensor<std::int32_t> ids{rows};
  const counter_rng rng{3, rng_purpose::test};
  for (std::size_t i = 0; i < rows; ++i) ids[i] = static_cast<std::int32_t>(rng.word(i) % vocabulary);
  return ids;
}

}  // namespace

TEMPLATE_TEST_CASE("embedding looks up rows and adds positions; its backward pass scatters them back", "", float,
                   double) {
  using T = TestType;
  struct size {
    std::size_t rows, vocabulary, width, context;
  };
  const size s = GENERATE(size{1, 1, 1, 1}, size{12, 5, 17, 4}, size{130, 65, 64, 65}, size{7, 40, 65, 3});
  const bool positions = GENERATE(true, false);
  CAPTURE(s.rows, s.vocabulary, s.width, s.context, positions);
  const tensor<T> table = normal<T>({s.vocabulary, s.width}, 1);
  const tensor<T> position = normal<T>({s.context, s.width}, 2);
  const tensor<std::int32_t> ids = random_ids(s.rows, s.vocabulary);
  tensor<T> out{s.rows, s.width};
  thread_team team{1};
  run(op::embedding_forward{out, ids, table, positions ? position.view() : tensor_view{}}, team);
  bool right = true;
  for (std::size_t i = 0; i < s.rows; ++i) {
    for (std::size_t j = 0; j < s.width; ++j) {
      const T looked_up = table[static_cast<std::size_t>(ids[i]) * s.width + j];
      const T expected = positions ? looked_up + position[i % s.context * s.width + j] : looked_up;
      right = right && out[i * s.width + j] == expected;
    }
  }
  CHECK(right);

  const tensor<T> grad = normal<T>({s.rows, s.width}, 3);
  std::vector<double> table_sum(table.count());
  std::vector<double> position_sum(position.count());
  for (std::size_t i = 0; i < s.rows; ++i) {
    for (std::size_t j = 0; j < s.width; ++j) {
      table_sum[static_cast<std::size_t>(ids[i]) * s.width + j] += static_cast<double>(grad[i * s.width + j]);
      position_sum[i % s.context * s.width + j] += static_cast<double>(grad[i * s.width + j]);
    }
  }
  tensor<T> grad_table{s.vocabulary, s.width};
  tensor<T> grad_position{s.context, s.width};
  op::embedding_backward back{grad_table, positions ? grad_position.view() : tensor_view{}, grad, ids, false, false};
  run(back, team);
  CHECK(distance(grad_table.values, table_sum) < tolerance<T>);
  if (positions) CHECK(distance(grad_position.values, position_sum) < tolerance<T>);

  SECTION("each table accumulates only on request") {
    back.accumulate_table = true;
    run(back, team);
    for (double& sum : table_sum) sum *= 2;
    CHECK(distance(grad_table.values, table_sum) < tolerance<T>);
    if (positions) CHECK(distance(grad_position.values, position_sum) < tolerance<T>);
  }
}

TEMPLATE_TEST_CASE("embedding has the same bits on any number of threads", "", float, double) {
  using T = TestType;
  const tensor<T> table = normal<T>({50, 100}, 1);
  const tensor<T> position = normal<T>({16, 100}, 2);
  const tensor<T> grad = normal<T>({1000, 100}, 3, 0.1);  // 0.1, so that sums in double round, too
  const tensor<std::int32_t> ids = random_ids(1000, 50);
  std::vector<tensor<T>> results[2];
  for (const std::size_t threads : {1U, 2U}) {
    thread_team team{threads};
    tensor<T> out{1000, 100};
    tensor<T> grad_table{50, 100};
    tensor<T> grad_position{16, 100};
    run(op::embedding_forward{out, ids, table, position}, team);
    run(op::embedding_backward{grad_table, grad_position, grad, ids, false, false}, team);
    results[threads - 1] = {out, grad_table, grad_position};
  }
  for (std::size_t i = 0; i < 3; ++i) CHECK(same_bits(results[0][i], results[1][i]));

  // Control: in another row order the sums have other bits, so equality above is not a matter of course.
  tensor<std::int32_t> reversed_ids = ids;
  std::reverse(reversed_ids.values.begin(), reversed_ids.values.end());
  tensor<T> reversed{1000, 100};
  for (std::size_t i = 0; i < 1000; ++i) std::copy_n(&grad[(999 - i) * 100], 100, &reversed[i * 100]);
  thread_team team{1};
  tensor<T> grad_table{50, 100};
  run(op::embedding_backward{grad_table, {}, reversed, reversed_ids, false, false}, team);
  CHECK_FALSE(same_bits(grad_table, results[0][1]));
}

TEST_CASE("an id outside the table is an error that names row and id, and nothing is written") {
  thread_team team{1};
  const tensor<float> table = normal<float>({5, 8}, 1);
  const tensor<std::int32_t> ids{{3}, {0, GENERATE(5, -1, 1 << 30), 4}};
  tensor<float> out{3, 8};
  tensor<float> grad_table{5, 8};
  failure found = failure_of([&] { run(op::embedding_forward{out, ids, table, {}}, team); });
  CHECK(found.code == errc::invalid_argument);
  CHECK_THAT(found.text,
             ContainsSubstring("row 1") && ContainsSubstring(std::to_string(ids[1])) && ContainsSubstring("5 rows"));
  CHECK(std::isnan(out[0]));
  found = failure_of([&] { run(op::embedding_backward{grad_table, {}, table.view().slice(0, 0, 3), ids}, team); });
  CHECK(found.code == errc::invalid_argument);
  CHECK(std::isnan(grad_table[0]));
}

TEST_CASE("embedding refuses operands that do not fit; no rows are legal") {
  thread_team team{1};
  const tensor<float> table = normal<float>({5, 8}, 1);
  tensor<float> out{3, 8};
  const tensor<std::int32_t> ids{{3}, {0, 1, 2}};
  const tensor<float> narrow = normal<float>({3, 7}, 1);
  const failure found = failure_of([&] {
    run(op::embedding_forward{out, ids, table, narrow.view().slice(0, 0, 1)}, team);
  });
  CHECK(found.code == errc::invalid_shape);
  CHECK_THAT(found.text, ContainsSubstring("[1, 7]") && ContainsSubstring("[5, 8]"));
  CHECK(failure_of([&] { run(op::embedding_forward{narrow, ids, table, {}}, team); }).code == errc::invalid_shape);
  CHECK(failure_of([&] { run(op::embedding_forward{out, table, table, {}}, team); }).code == errc::invalid_shape);
  tensor<float16> half{{5, 8}, std::vector<float16>(40)};
  CHECK(failure_of([&] {
          run(op::embedding_forward{half.view().slice(0, 0, 3), ids, half, {}}, team);
        }).code == errc::unsupported);

  tensor<float> none{0, 8};
  tensor<std::int32_t> no_ids{0};
  tensor<float> grad_table{5, 8};
  run(op::embedding_forward{none, no_ids, table, {}}, team);
  run(op::embedding_backward{grad_table, {}, none, no_ids, false, false}, team);
  CHECK(std::all_of(grad_table.values.begin(), grad_table.values.end(), [](float x) { return x == 0; }));
}
