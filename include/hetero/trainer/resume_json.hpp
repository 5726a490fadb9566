// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <charconv>
#include <string>
#include <vector>

#include <hetero/checkpoint/safetensors_json.hpp>
#include <hetero/model/profile.hpp>
#include <hetero/trainer/state.hpp>
#include <hetero/trainer/trainer.hpp>

/// @file
/// Reading what `trainer.save` wrote. Apart from the trainer, because it needs a JSON library and most programs do not.
namespace hetero {

/// The facts of a checkpoint beside its tensors.
struct checkpoint_info {
  std::string model;
  std::string model_hash;
  std::uint64_t step = 0;
  std::uint64_t seed = 0;
  std::vector<share_record> shares{};
};

/// Reads the metadata of a checkpoint.
/// @throws error io, bad_file; bad_file as well for a safetensors file that `trainer.save` did not write
[[nodiscard]] inline checkpoint_info read_checkpoint_info(const safetensors_file& file) {
  const auto& metadata = file.metadata();
  const auto text = [&](const char* key) {
    const auto found = metadata.find(key);
    require(found != metadata.end(), errc::bad_file, [&] {
      return "'" + file.path() + "' is a safetensors file without '" + key +
             "': it holds no training state to resume; load_parameters takes its weights";
    });
    return found->second;
  };
  const auto number = [&](const char* key) {
    const std::string digits = text(key);
    std::uint64_t value = 0;
    const auto [end, failure] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    require(failure == std::errc{} && end == digits.data() + digits.size(), errc::bad_file,
            [&] { return "'" + file.path() + "': '" + key + "' is \"" + digits + "\", not a number"; });
    return value;
  };
  return {.model = text("model"),
          .model_hash = text("model_hash"),
          .step = number("step"),
          .seed = number("seed"),
          .shares = share_history_from(text("shares"))};
}

namespace detail {

/// Fills a tensor on any device from a file.
inline void load_into(const safetensors_file& file, const named_tensor& tensor, any_device& device, stream_id stream) {
  if (device.id().kind == device_kind::cpu) {
    file.load_tensor(tensor.name, tensor.view);
    return;
  }
  std::vector<std::byte> host(tensor.view.size_bytes());
  const tensor_view staged{host.data(), tensor.view.type(), tensor.view.extents()};
  file.load_tensor(tensor.name, staged);
  device.copy(tensor.view, staged, stream);
  device.synchronize(stream);
}

/// Refuses a file of another model before anything is overwritten.
template <class Trainer>
void check_tensors(const safetensors_file& file, Trainer& t, bool whole_state) {
  for (const auto& tensor : t.parameters().named()) {
    const bool is_state = tensor.name.starts_with("optimizer.");
    if (is_state && !whole_state) continue;
    require(file.contains(tensor.name), errc::mismatch, [&] {
      return "'" + file.path() + "' has no tensor '" + tensor.name + "': it is a checkpoint of another model" +
             (is_state ? " or optimizer" : "");
    });
    const auto& stored = file.tensor(tensor.name).extents;
    require(stored == tensor.view.extents(), errc::mismatch, [&] {
      return "'" + file.path() + "' has '" + tensor.name + "' as " + to_string(stored) + ", this model needs " +
             to_string(tensor.view.extents()) + ": it is a checkpoint of another model";
    });
  }
}

}  // namespace detail

/// Puts a trainer where the one that saved `path` was: parameters, optimizer state, position in the data, share history.
/// Collective; every rank reads the file. Nothing changes when the file is refused.
/// @throws error io, bad_file; mismatch for a checkpoint of another model, optimizer or seed
template <class Trainer>
void resume(Trainer& t, const std::string& path) {
  const safetensors_file file{path};
  const checkpoint_info info = read_checkpoint_info(file);
  const std::string hash = to_hex(model_hash(t.get_model()));
  require(info.model_hash == hash, errc::mismatch, [&] {
    return "'" + path + "' holds " + info.model + " (hash " + info.model_hash + "), this program trains " +
           std::string{t.get_model().name()} + " (hash " + hash + "); start it with the same model options";
  });
  require(info.seed == t.options().seed, errc::mismatch, [&] {
    return "'" + path + "' was trained with seed " + std::to_string(info.seed) + ", this run has seed " +
           std::to_string(t.options().seed) + "; give the same seed, or dropout and order would change in the middle";
  });
  detail::check_tensors(file, t, /*whole_state=*/true);
  file.verify();  // damage is found before the first tensor is overwritten
  t.restore(info.step, info.shares, [&](const named_tensor& tensor, any_device& device, stream_id stream) {
    detail::load_into(file, tensor, device, stream);
  });
}

/// Loads the parameters of `path` and nothing else, from a checkpoint or from any safetensors file with the same names and
/// shapes. Collective; every rank reads the file.
/// @throws error io, bad_file; mismatch when a parameter is missing or has another shape
template <class Trainer>
void load_parameters(Trainer& t, const std::string& path) {
  const safetensors_file file{path};
  detail::check_tensors(file, t, /*whole_state=*/false);
  t.load_parameters([&](const named_tensor& tensor, any_device& device, stream_id stream) {
    detail::load_into(file, tensor, device, stream);
  });
}

}  // namespace hetero
