// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// The door: everything a program needs to train a ready model, or its own, on an uneven pool.
/// Readers of files that need a JSON library stay outside: trainer/resume_json.hpp, report/metrics_json.hpp.

#include <hetero/comm/join.hpp>
#include <hetero/data/batches.hpp>
#include <hetero/data/text_corpus.hpp>
#include <hetero/model/gpt.hpp>
#include <hetero/model/mlp.hpp>
#include <hetero/optim/adamw.hpp>
#include <hetero/optim/clip.hpp>
#include <hetero/optim/learning_rate.hpp>
#include <hetero/optim/sgd.hpp>
#include <hetero/partition/partitioners.hpp>
#include <hetero/plan/plan_table.hpp>
#include <hetero/report/progress.hpp>
#include <hetero/schedule/gpipe.hpp>
#include <hetero/schedule/one_f_one_b.hpp>
#include <hetero/shard/replicated.hpp>
#include <hetero/sync/all_reduce.hpp>
#include <hetero/trainer/launch.hpp>
#include <hetero/trainer/trainer.hpp>
