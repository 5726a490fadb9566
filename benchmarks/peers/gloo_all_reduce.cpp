// SPDX-License-Identifier: Apache-2.0
// One rank of Gloo's C++ API, for benchmarks/collectives and benchmarks/shaped_links. Variants: ring (the segmented one
// that PyTorch uses), ring_chunked, halving_doubling and bcube.
//
//     peer_gloo --rank R --ranks N --store FOLDER (--interface NAME | --address A) --control PATH

#include "../support/rank_server.hpp"

#include <gloo/allreduce.h>
#include <gloo/allreduce_bcube.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/config.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <cstdio>
#include <memory>
#include <vector>

namespace {

std::function<void()> prepare(const std::shared_ptr<gloo::Context>& context, float* data, std::size_t count,
                              const std::string& variant) {
  const std::vector<float*> where{data};
  std::shared_ptr<gloo::Algorithm> algorithm;
  if (variant == "ring_chunked")
    algorithm = std::make_shared<gloo::AllreduceRingChunked<float>>(context, where, static_cast<int>(count));
  else if (variant == "halving_doubling")
    algorithm = std::make_shared<gloo::AllreduceHalvingDoubling<float>>(context, where, static_cast<int>(count));
  else if (variant == "bcube")
    algorithm = std::make_shared<gloo::AllreduceBcube<float>>(context, where, static_cast<int>(count));
  if (algorithm) return [algorithm] { algorithm->run(); };
  if (variant != "ring") throw std::runtime_error{"unknown variant " + variant};
  return [context, data, count] {
    gloo::AllreduceOptions options{context};
    options.setAlgorithm(gloo::AllreduceOptions::Algorithm::RING);
    options.setOutput(data, count);
    options.setReduceFunction(static_cast<void (*)(void*, const void*, const void*, std::size_t)>(&gloo::sum<float>));
    gloo::allreduce(options);
  };
}

}  // namespace

int main(int argc, char** argv) {
  std::map<std::string, std::string> given;
  for (int i = 1; i + 1 < argc; i += 2) given[argv[i]] = argv[i + 1];
  try {
    const int rank = std::stoi(given.at("--rank")), ranks = std::stoi(given.at("--ranks"));
    gloo::transport::tcp::attr where;
    where.iface = given["--interface"];
    where.hostname = given["--address"];
    auto device = gloo::transport::tcp::CreateDevice(where);
    gloo::rendezvous::FileStore store{given.at("--store")};
    const auto context = std::make_shared<gloo::rendezvous::Context>(rank, ranks);
    context->connectFullMesh(store, device);
    return hetero::bench::serve_rank(
        given.at("--control"), static_cast<unsigned>(rank), static_cast<unsigned>(ranks),
        "Gloo " + std::to_string(GLOO_VERSION_MAJOR) + '.' + std::to_string(GLOO_VERSION_MINOR),
        [&](float* data, std::size_t count, const std::string& variant) {
          return prepare(context, data, count, variant);
        });
  } catch (const std::exception& reason) {
    std::fprintf(stderr, "peer_gloo: %s\n", reason.what());
    return 1;
  }
}
