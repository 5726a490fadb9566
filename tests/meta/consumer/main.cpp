// SPDX-License-Identifier: Apache-2.0
#include <hetero/core/error.hpp>
#include <hetero/core/weighted_sum.hpp>

#include <iostream>

int main() {
  const hetero::weighted_sum parts = hetero::weighted_sum{6.0, 2.0} + hetero::weighted_sum{3.0, 1.0};
  std::cout << "a consumer of hetero: mean " << hetero::global_sum{parts}.mean() << '\n';
  return hetero::global_sum{parts}.mean() == 3.0 ? 0 : 1;
}
