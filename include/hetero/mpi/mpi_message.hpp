// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

#include <hetero/comm/transport.hpp>
#include <hetero/mpi/mpi_session.hpp>

namespace hetero::detail {

enum class mpi_message_type : std::uint8_t { data, more, abort, goodbye };

/// Leads each MPI message. Ranks of one MPI job share the byte order; the magic number says so.
struct mpi_header {
  static constexpr std::uint32_t magic_value = 0x48'4d'50'31;
  std::uint32_t magic = magic_value;
  std::uint32_t origin = 0;  ///< of a failure
  fingerprint what;          ///< of the message that begins here
  std::uint64_t bytes = 0;   ///< of the whole message
  mpi_message_type type = mpi_message_type::data;
  errc code = errc::aborted;
};
static_assert(std::is_trivially_copyable_v<mpi_header>);

/// Multiple of every element size, so that pieces are combined as they come.
inline constexpr std::size_t mpi_piece_bytes = std::size_t{128} << 10U;

/// Memory that MPI reads or writes. It belongs to the transport and never to a caller: MPI can neither take back a send
/// nor a receive that has begun, so what it works on must outlive every call that is given up.
class mpi_slot {
 public:
  mpi_slot() = default;
  mpi_slot(mpi_slot&& other) noexcept
      : request_{std::exchange(other.request_, MPI_REQUEST_NULL)},
        room_{std::exchange(other.room_, 0)},
        memory_{std::move(other.memory_)} {}
  mpi_slot& operator=(mpi_slot&&) = delete;
  /// Leaves the memory to MPI if that still works on it.
  ~mpi_slot() {
    if (request_ != MPI_REQUEST_NULL) (void)memory_.release();
  }

  [[nodiscard]] bool idle() const noexcept { return request_ == MPI_REQUEST_NULL; }

  void send(const mpi_header& header, std::span<const std::byte> payload, int to, MPI_Comm comm) {
    reserve(payload.size());
    std::memcpy(memory_.get(), &header, sizeof header);
    if (!payload.empty()) std::memcpy(memory_.get() + sizeof header, payload.data(), payload.size());
    const auto length = static_cast<int>(sizeof header + payload.size());
    check_mpi(MPI_Isend(memory_.get(), length, MPI_BYTE, to, 0, comm, &request_), "MPI_Isend");
  }

  void receive(int from, MPI_Comm comm) {
    reserve(mpi_piece_bytes);
    const auto length = static_cast<int>(sizeof(mpi_header) + mpi_piece_bytes);
    check_mpi(MPI_Irecv(memory_.get(), length, MPI_BYTE, from, 0, comm, &request_), "MPI_Irecv");
  }

  /// True once nothing is going on here. Moves MPI along.
  bool test() {
    if (idle()) return true;
    int ended = 0;
    MPI_Status status;
    check_mpi(MPI_Test(&request_, &ended, &status), "MPI_Test");
    if (ended == 0) return false;
    int length = 0;
    MPI_Get_count(&status, MPI_BYTE, &length);
    length_ = static_cast<std::size_t>(std::max(length, 0));
    return true;
  }

  void cancel() noexcept {
    if (!idle()) MPI_Cancel(&request_);
  }

  /// Of what was received. False when it is too short to be a message of ours.
  [[nodiscard]] bool read(mpi_header& header, std::span<const std::byte>& payload) const noexcept {
    if (length_ < sizeof header) return false;
    std::memcpy(&header, memory_.get(), sizeof header);
    payload = {memory_.get() + sizeof header, length_ - sizeof header};
    return header.magic == mpi_header::magic_value;
  }

 private:
  void reserve(std::size_t payload) {
    if (payload + sizeof(mpi_header) <= room_) return;
    // Small at first: most messages are.
    const std::size_t wanted = payload <= 4096 ? 4096 : mpi_piece_bytes;
    memory_ = std::make_unique_for_overwrite<std::byte[]>(wanted + sizeof(mpi_header));
    room_ = wanted + sizeof(mpi_header);
  }

  MPI_Request request_ = MPI_REQUEST_NULL;
  std::size_t room_ = 0;
  std::size_t length_ = 0;
  std::unique_ptr<std::byte[]> memory_;
};

}  // namespace hetero::detail
