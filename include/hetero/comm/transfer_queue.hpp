// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <hetero/comm/transport.hpp>

namespace hetero::detail {

/// First in, first out, linked through the transfers themselves: queueing never allocates. Guarded by its owner.
class transfer_queue {
 public:
  [[nodiscard]] bool empty() const noexcept { return head_ == nullptr; }
  [[nodiscard]] transfer* front() const noexcept { return head_; }

  void push(transfer& t) noexcept {
    t.next = nullptr;
    *tail_ = &t;
    tail_ = &t.next;
  }

  transfer* pop() noexcept {
    transfer* const first = head_;
    if (first != nullptr) remove(*first);
    return first;
  }

  [[nodiscard]] bool contains(const transfer& t) const noexcept {
    for (const transfer* other = head_; other != nullptr; other = other->next) {
      if (other == &t) return true;
    }
    return false;
  }

  /// False when `t` is not queued here.
  bool remove(transfer& t) noexcept {
    for (transfer** link = &head_; *link != nullptr; link = &(*link)->next) {
      if (*link != &t) continue;
      *link = t.next;
      if (tail_ == &t.next) tail_ = link;
      t.next = nullptr;
      return true;
    }
    return false;
  }

  transfer_queue() = default;
  transfer_queue(const transfer_queue&) = delete;
  transfer_queue& operator=(const transfer_queue&) = delete;

 private:
  transfer* head_ = nullptr;
  transfer** tail_ = &head_;
};

}  // namespace hetero::detail
