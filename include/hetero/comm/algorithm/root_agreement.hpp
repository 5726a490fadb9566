// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <hetero/comm/operation.hpp>

namespace hetero::detail {

/// An empty message around the ring, beside the data: ranks that name different roots may all wait for each other and
/// send nothing, but some rank's left neighbour differs from it, and this message says so. One message per rank, none
/// of whose bytes count.
template <exchange Exchange> class root_agreement {
 public:
  /// Before the first message of the collective.
  explicit root_agreement(Exchange& ex) : ex_{ex} {
    const auto n = ex.world_size();
    ex.start_recv(receive_, nullptr, 0, (ex.rank() + n - 1) % n);
    ex.start_send(send_, nullptr, 0, (ex.rank() + 1) % n);
  }
  /// After the last one.
  void finish() {
    ex_.finish(receive_);
    ex_.finish(send_);
  }

 private:
  Exchange& ex_;
  transfer receive_, send_;
};

}  // namespace hetero::detail
