// SPDX-License-Identifier: Apache-2.0
// A view does not slip into arithmetic through a conversion to bool.
// expect: cannot convert|no viable conversion
#include <hetero/core/tensor_view.hpp>

int elements(const hetero::tensor_view& view) {
#ifdef HETERO_CONTROL
  return view ? 1 : 0;
#else
  return view;
#endif
}
