// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <hetero/checkpoint/safetensors.hpp>
#include <hetero/comm/world.hpp>
#include <hetero/data/concepts.hpp>
#include <hetero/device/pool.hpp>
#include <hetero/device/stream.hpp>
#include <hetero/model/loss/accuracy.hpp>
#include <hetero/model/profile.hpp>
#include <hetero/plan/share.hpp>
#include <hetero/report/step_report.hpp>
#include <hetero/trainer/executor.hpp>
#include <hetero/trainer/groups.hpp>
#include <hetero/trainer/measure.hpp>
#include <hetero/trainer/planning.hpp>
#include <hetero/trainer/policies.hpp>
#include <hetero/trainer/scoring.hpp>
#include <hetero/trainer/state.hpp>
#include <hetero/trainer/step_range.hpp>
#include <hetero/trainer/update.hpp>

namespace hetero {

/// Trains one model on all ranks of a world, each with the share of the batch its device can carry, with the result that
/// one device would give.
///
/// Built from a model, a world and any of: an optimizer, a partitioner, a scheduler, a sharding policy, a synchronizer,
/// `trainer_options`, an `any_device`, in any order. What is not given has a default. Every member is collective unless
/// said otherwise: all ranks call it, in the same order. One thread per trainer; several trainers may share devices and
/// a world.
template <model Model, class World, class... Args>
class trainer {
  using policies = detail::policy_set<Args...>;
  using synchronizer_type = typename policies::synchronizer_type;
  using groups_type = named_groups<World>;
  using executor_type = executor<Model, groups_type>;
  using session_type = decltype(std::declval<const synchronizer_type&>().start(std::declval<World&>(),
                                                                               std::declval<replica_tensors>()));
  static_assert(partitioner<typename policies::partitioner_type> && scheduler<typename policies::scheduler_type> &&
                    sharding<typename policies::sharding_type> && synchronizer<synchronizer_type, World> &&
                    optimizer<typename policies::optimizer_type>,
                "a policy does not model its concept; docs/concepts/ has the requirements of each");

 public:
  /// Allocates and initialises the model on this rank's device and compares model and options with the other ranks.
  /// @throws error mismatch when ranks were started with different models or options; out_of_memory; as the world does
  explicit trainer(Model m, World& world, Args... args)
      : model_{std::move(m)},
        policies_{args...},
        options_{detail::pick<trainer_options>(args...)},
        channel_{std::make_unique<World>(world.channel("trainer"))},
        stream_{detail::pick_device(args...)},
        profile_{profile_of(model_, options_.type)},
        store_{stream_.device(), stream_.id(), layout_of(model_), options_.type, options_.seed, policies_.optimize.state_names()},
        executor_{model_, store_, stream_.device(), stream_.id(), &groups_,
                  {.seed = options_.seed, .leaves = options_.mode == numerics::reproducible}},
        session_{start_session()},
        planner_{options_, policies_.rebalance} {
    agree_with_others();
  }

  trainer(const trainer&) = delete;
  trainer& operator=(const trainer&) = delete;

  /// One optimizer step on the next global batch of `source`: loads this rank's share and calls `step(batch)`.
  /// @throws error as `step(batch)`; as the source does
  template <batch_source Source>
  step_report step(const Source& source) {
    const auto bound = bind_source(source);
    plan_for(bound);
    const auto ids = bound.sample_ids(at_.step);
    const sample_range mine = share(ids.size());
    return step(bound.load(std::span{ids}.subspan(mine.begin, mine.count())).view());
  }

  /// One optimizer step: `local` holds this rank's samples, those of all ranks together are the global batch. Legal
  /// shares include none. The parts are `forward_backward`, `reduce` and `update`; this is all three.
  /// @throws error peer_lost, timeout, mismatch; invalid_argument when no rank counted a target
  step_report step(const batch_view& local) {
    const auto started = clock::now();
    const double busy_before = stream_.device().counters().busy_s;
    forward_backward(local);
    reduce();
    update();
    const double seconds = seconds_since(started);
    busy_ = std::min(1.0, (stream_.device().counters().busy_s - busy_before) / seconds);
    return report(seconds);
  }

  /// Runs forward and backward passes of the current plan on this rank's samples, starting the exchange of gradients
  /// bucket by bucket. Gradients are sums over samples until `update` divides them, once.
  void forward_backward(const batch_view& local) {
    require(plan_.has_value(), errc::invalid_argument, "no plan yet: call prepare(source) or rebind(world, plan) first");
    require_room_for(local.size(), program_, options_.mode);
    local_samples_ = local.size();
    current_ = {.step = at_.step};
    const double busy_before = stream_.device().counters().busy_s;
    session_->before_forward(current_);
    hooks h{*this};
    executor_.run(program_, *plan_, local, at_.step, h);
    stream_.synchronize();
    compute_s_ = stream_.device().counters().busy_s - busy_before;
  }

  /// Sums loss, weight and gradients over all ranks.
  void reduce() {
    const auto began = clock::now();
    const auto losses = executor_.losses();
    if (options_.mode == numerics::reproducible) {
      if constexpr (reproducible_session<session_type>) {
        const auto leaves = executor_.leaves();
        session_->reduce_leaves({leaves});
        total_ = hetero::reduce_leaves(*channel_, std::span{losses}.first(local_samples_));
      }
    }
    for (const auto& part : losses) current_.local += part;
    if constexpr (synchronizer_type::exact) {
      records_ = exchange(*channel_, {current_.local, static_cast<double>(local_samples_), compute_s_, wait_s_,
                                      busy_, planner_.take_proposal()});
      if (options_.mode == numerics::fast) {
        total_ = {};
        for (const auto& r : records_) total_ += r.loss;
      }
    } else {
      total_ = current_.local;
      records_.assign(channel_->world_size(), {});
      records_[index_of(channel_->rank())] = {current_.local, static_cast<double>(local_samples_), compute_s_, wait_s_, busy_, {}};
    }
    current_.weight = total_.weight;
    session_->before_update(current_);
    wait_s_ = seconds_since(began);
  }

  /// Clips and applies the optimizer to what `reduce` left, then lets the synchronizer merge parameters. Not collective
  /// under an exact synchronizer without clipping.
  /// @throws error invalid_argument when no target was counted
  void update() {
    // A replica that goes its own way and counted nothing has nothing to apply.
    if (!synchronizer_type::exact && current_.weight == 0) current_.apply = false;
    if (current_.apply) {
      const global_sum everyone{{total_.sum, current_.weight}};
      loss_ = everyone.mean();  // refuses a step in which nothing was counted
      double factor = 1 / current_.weight;
      grad_norm_ = std::numeric_limits<double>::quiet_NaN();
      if (policies_.clip.max_norm > 0) {
        grad_norm_ = gradient_norm() * factor;
        factor *= policies_.clip.factor(grad_norm_);
      }
      learning_rate_ = policies_.rate_at(at_.step + 1);
      ++at_.updates;
      apply_update(stream_, store_, policies_.optimize, factor, learning_rate_, at_.updates);
    }
    session_->after_update(current_);
    stream_.synchronize();
    ++at_.step;
  }

  /// The Euclidean norm of the summed gradient: over all ranks, each element counted by its one owner, or of this rank's
  /// gradient where the synchronizer lets replicas differ.
  [[nodiscard]] double gradient_norm() {
    // In reproducible mode every rank holds the same bits and adds them in the same order.
    if (!synchronizer_type::exact || options_.mode == numerics::reproducible) {
      return std::sqrt(sum_of_squares(stream_, store_.grads(), norm_));
    }
    const element_range mine = policies_.shard.owned(store_.layout(), *plan_, channel_->rank());
    const double part = sum_of_squares(stream_, store_.grads().slice(0, mine.begin, mine.end), norm_);
    return std::sqrt(channel_->all_reduce(part, reduce_op::sum));
  }

  /// A range over `count` steps on `source`, each loaded in the background; its elements are `step_report`s.
  template <batch_source Source>
  [[nodiscard]] auto steps(const Source& source, std::uint64_t count) {
    auto bound = bind_source(source);
    plan_for(bound);
    return step_range<trainer, decltype(bound)>{*this, std::move(bound), count};
  }

  /// Measures the devices on `source` and makes the plan, unless there is one for its batch size already.
  template <batch_source Source>
  void prepare(const Source& source) {
    plan_for(bind_source(source));
  }

  /// The mean loss over a whole data set or source, each sample once, divided among ranks like a batch.
  template <class Data>
  [[nodiscard]] double evaluate(const Data& data) {
    return score(data, [&](auto& c, auto prediction, auto targets, auto weights, auto result) {
      model_.loss().evaluate(c, prediction, targets, weights, result, tensor_view{});
    }).mean();
  }

  /// The fraction of counted targets that the largest prediction hits, over a whole data set.
  template <class Data>
  [[nodiscard]] double accuracy(const Data& data) {
    return score(data, [](auto& c, auto prediction, auto targets, auto weights, auto result) {
      hetero::accuracy{}.evaluate(c, prediction, targets, weights, result);
    }).mean();
  }

  /// Predictions for a few samples, in host memory. Local: any rank may call it alone.
  [[nodiscard]] std::vector<float> predict(const batch_view& local) {
    return download(stream_, executor_.predict(local));
  }

  /// Gradient of the summed loss with respect to the input of `local`, weights frozen. Local. The view lives until the
  /// next call.
  [[nodiscard]] tensor_view input_gradient(const batch_view& local) {
    if (!frozen_) {
      frozen_ = std::make_unique<executor_type>(model_, store_, stream_.device(), stream_.id(), &groups_,
                                                typename executor_type::options{
                                                    .seed = options_.seed, .input_gradient = true, .frozen = true});
    }
    frozen_->rehearse(local);
    return frozen_->input_gradient(micro_batch_id{0});
  }

  /// Puts another plan in force, on the same or another world: survivors keep their state, ranks that hold none get it
  /// from the first that does.
  /// @throws error plan_does_not_fit, mismatch
  void rebind(World& world, plan next) {
    require_fits(next, world.world_size());
    session_->drain();
    session_.reset();  // it refers to the channel
    channel_ = std::make_unique<World>(world.channel("trainer"));
    session_.emplace(start_session());
    agree_with_others();
    spread_state(*channel_, at_, store_.named());
    planner_ = shares_planner{options_, policies_.rebalance};
    adopt(std::move(next));
  }

  /// Saves parameters, optimizer state, data position and share history to one safetensors file: rank 0 writes, all
  /// ranks learn how it went. The file appears whole or not at all.
  /// @throws error io on every rank when it could not be written
  void save(const std::string& path, const file_metadata& more = {}) {
    session_->drain();
    std::string failure;
    if (index_of(channel_->rank()) == 0) {
      try {
        stream_.synchronize();
        auto tensors = store_.named();
        for (auto& tensor : session_->save()) tensors.push_back(std::move(tensor));
        save_safetensors(path, tensors, metadata(more));
      } catch (const error& e) {
        failure = e.message();
      }
    }
    channel_->broadcast(failure, rank_id{0});
    require(failure.empty(), errc::io, failure);
  }

  /// Optimizer steps made so far; also the position in the data.
  [[nodiscard]] std::uint64_t position() const noexcept { return at_.step; }
  /// The plan in force. @throws error invalid_argument before the first `step`, `steps` or `prepare`
  [[nodiscard]] const plan& current_plan() const {
    require(plan_.has_value(), errc::invalid_argument, "no plan yet: call prepare(source) first");
    return *plan_;
  }
  /// What was measured of all ranks.
  [[nodiscard]] const cluster& machines() const noexcept { return planner_.machines(); }
  /// The shares of this run, from the steps on at which they changed.
  [[nodiscard]] const std::vector<share_record>& share_history() const noexcept { return planner_.history(); }
  [[nodiscard]] const Model& get_model() const noexcept { return model_; }
  [[nodiscard]] parameter_store& parameters() noexcept { return store_; }
  [[nodiscard]] const trainer_options& options() const noexcept { return options_; }
  [[nodiscard]] any_device& device() noexcept { return stream_.device(); }
  /// The trainer's own channel; a helper of the trainer's caller should make a channel from it.
  [[nodiscard]] World& communicator() noexcept { return *channel_; }
  /// Named groups that layers may talk to.
  [[nodiscard]] groups_type& groups() noexcept { return groups_; }
  /// Samples of this rank in a step of `samples` samples.
  [[nodiscard]] sample_range share(std::size_t samples) const { return hetero::share_of(current_plan(), channel_->rank(), samples); }

  /// Restores position and share history, and lets `load(tensor, device, stream)` fill every tensor. `resume` in
  /// trainer/resume_json.hpp is the usual caller.
  template <class Load>
  void restore(std::uint64_t step, std::vector<share_record> history, Load&& load) {
    session_->drain();
    for (const auto& tensor : store_.named()) load(tensor, stream_.device(), stream_.id());
    for (const auto& tensor : session_->save()) load(tensor, stream_.device(), stream_.id());
    session_->restore();
    at_ = {step, step};
    planner_.restore(std::move(history));
    plan_.reset();
  }

  /// Lets `load(tensor, device, stream)` fill the parameters, and leaves everything else.
  template <class Load>
  void load_parameters(Load&& load) {
    for (const auto& tensor : store_.parameters()) load(tensor, stream_.device(), stream_.id());
  }

 private:
  using clock = std::chrono::steady_clock;

  struct hooks {
    trainer& self;
    void reduce(const action& a) {
      if (self.options_.mode == numerics::reproducible) return;  // leaves are summed at the end of the step
      const bucket& b = self.buckets_[a.bucket];
      self.executor_.clear_untouched(b.begin, b.end);
      self.session_->bucket_ready(b, self.current_);
    }
    void step(const action&) { self.executor_.clear_untouched(0, self.store_.layout().trainable_elements); }
  };

  static double seconds_since(clock::time_point began) {
    return std::chrono::duration<double>(clock::now() - began).count();
  }

  session_type start_session() {
    return policies_.synchronize.start(*channel_, replica_tensors{.device = stream_.device(),
                                                          .stream = stream_.id(),
                                                          .layout = &store_.layout(),
                                                          .params = store_.params(),
                                                          .grads = store_.grads()});
  }

  void agree_with_others() {
    if constexpr (!reproducible_session<session_type>) {
      require(options_.mode == numerics::fast, errc::unsupported,
              "this synchronizer has no reproducible mode; all_reduce_synchronizer has");
    }
    require(options_.mode == numerics::fast || stream_.device().threads() == 1, errc::unsupported, [&] {
      return "reproducible mode needs devices of one thread, " + to_string(stream_.device().id()) + " has " +
             std::to_string(stream_.device().threads()) + "; use cpu:1";
    });
    channel_->agree("model", model_.name() + " (hash " + to_hex(model_hash(model_)) + ')');
    channel_->agree("options", describe(options_) + ", " + policies_.describe());
  }

  /// Text is cut into windows of the model's context, unless the caller chose another.
  template <class Source>
  auto bind_source(const Source& source) const {
    if constexpr (requires { source.with_context(model_.context()); }) {
      return source.with_context(model_.context());
    } else if constexpr (requires { source.windows(model_.context()); }) {
      return source.windows(model_.context());
    } else {
      return source;
    }
  }

  template <class Source>
  void plan_for(const Source& source) {
    const auto global_batch = static_cast<std::size_t>(source.global_batch());
    if (plan_ && plan_->global_batch == global_batch) return;
    channel_->agree("data", "fingerprint " + to_hex(source.fingerprint()) + ", global batch " + std::to_string(global_batch) +
                                ", step " + std::to_string(at_.step));
    const auto* const recorded = planner_.starting_shares(at_.step, channel_->world_size(), global_batch);
    rank_profile mine = own_profile();
    if (options_.measure && recorded == nullptr) {
      channel_->barrier();  // devices that share a machine are timed while all of them work, as they will train
      mine.compute = measure_compute(executor_, stream_.device(), source, source.sample_ids(at_.step),
                                     global_batch / channel_->world_size());
    }
    planner_.adopt(gather_profiles(*channel_, mine));
    plan next = policies_.partition.partition(profile_, planner_.machines(), work(global_batch));
    // One rank decides, so that arithmetic that differs in a last bit between machines cannot split the job.
    adopt(with_shares(std::move(next), recorded ? *recorded : agreed_shares(*channel_, shares_of(next))));
  }

  workload work(std::size_t global_batch) const {
    return {.global_batch = global_batch,
            .micro_batches = policies_.schedule.micro_batches,
            .bytes_per_parameter = (2 + store_.state_names().size()) * size_of(options_.type)};
  }

  rank_profile own_profile() {
    auto& device = stream_.device();
    return {.device = options_.device_name.empty() ? to_string(device.id()) : options_.device_name,
            .kind = device.id().kind,
            .compute = {.per_sample_s = 1 / (options_.declared_speed * static_cast<double>(device.threads()))},
            .memory_bytes = device.budget_bytes()};
  }

  void require_fits(const plan& next, std::uint32_t ranks) const {
    validate(next);
    require(next.num_layers == model_.size() && next.world_size() == ranks, errc::plan_does_not_fit, [&] {
      return "the plan is for " + std::to_string(next.num_layers) + " layers on " + std::to_string(next.world_size()) +
             " ranks; " + model_.name() + " has " + std::to_string(model_.size()) + " and the world " + std::to_string(ranks);
    });
  }

  /// Makes a plan the current one: validates it, compares it with the other ranks and builds this rank's program.
  void adopt(plan next) {
    require_fits(next, channel_->world_size());
    channel_->agree("plan", "epoch " + std::to_string(next.epoch) + ", hash " + to_hex(plan_hash(next)));
    planner_.record(at_.step, shares_of(next));
    if (options_.mode == numerics::reproducible) {
      for (auto& r : next.replicas) r.micro_batches = static_cast<std::uint32_t>(std::max<std::size_t>(1, r.share));
    }
    buckets_ = policies_.synchronize.buckets(store_.layout(), options_.type);
    const rank_id me = channel_->rank();
    program_ = policies_.schedule.actions(next, me);
    program_ = policies_.shard.insert(program_, store_.layout(), next, me);
    program_ = policies_.synchronize.insert(program_, store_.layout(), options_.type, next, me);
    plan_ = std::move(next);
  }

  step_report report(double seconds) {
    step_report result{.step = at_.step, .rank = index_of(channel_->rank()), .loss = loss_, .learning_rate = learning_rate_,
                       .grad_norm = grad_norm_, .seconds = seconds, .tokens = static_cast<std::uint64_t>(total_.weight)};
    describe_ranks(result, records_, planner_.machines());
    result.rebalanced = follow_drift();
    return result;
  }

  /// Puts shares in force that the first rank proposed with this step's exchange, or that a replayed history names.
  bool follow_drift() {
    std::vector<std::size_t> shares;
    if (const auto* recorded = planner_.replayed(at_.step)) {
      if (*recorded != shares_of(*plan_)) shares = *recorded;
    } else if constexpr (synchronizer_type::exact) {
      shares = records_.front().proposal;
      if (shares.empty()) {
        planner_.observe(records_, *plan_, channel_->rank(), policies_.partition, profile_, work(plan_->global_batch));
      }
    }
    if (shares.empty()) return false;
    plan next = with_shares(*plan_, shares);
    ++next.epoch;
    adopt(std::move(next));
    return true;
  }

  /// Scores a whole data set; each rank takes samples by its share of the plan.
  template <class Dataset, class Add>
  global_sum score(const Dataset& whole, Add&& add) {
    const auto& data = bind_source(whole);
    const auto samples = static_cast<std::size_t>(data.size());
    const std::size_t n = channel_->world_size();
    const std::size_t me = index_of(channel_->rank());
    const sample_range mine = plan_ ? share(samples) : sample_range{samples * me / n, samples * (me + 1) / n};
    constexpr std::size_t usual = 16;  // of the order of a training share, so that evaluation needs no more memory
    const std::size_t at_once = plan_ ? std::max(usual, plan_->global_batch / n) : usual;
    return channel_->all_reduce(score_samples(executor_, data, mine, at_once, add));
  }

  file_metadata metadata(file_metadata facts) const {
    facts.insert({{"format", "hetero"},
                  {"model", model_.name()},
                  {"model_hash", to_hex(model_hash(model_))},
                  {"step", std::to_string(at_.step)},
                  {"seed", std::to_string(options_.seed)},
                  {"shares", to_text(planner_.history())}});
    return facts;
  }

  Model model_;
  policies policies_;
  trainer_options options_;
  std::unique_ptr<World> channel_;
  stream stream_;
  groups_type groups_;
  model_profile profile_;
  parameter_store store_;
  buffer norm_;
  executor_type executor_;
  std::unique_ptr<executor_type> frozen_;
  std::optional<session_type> session_;
  shares_planner planner_;

  std::optional<plan> plan_;
  program program_;
  std::vector<bucket> buckets_;

  training_position at_;
  sync_step current_;
  weighted_sum total_;
  std::vector<step_record> records_;
  std::size_t local_samples_ = 0;
  double compute_s_ = 0;
  double wait_s_ = 0;
  double busy_ = 0;
  double loss_ = 0;
  double grad_norm_ = std::numeric_limits<double>::quiet_NaN();
  double learning_rate_ = 0;
};

template <class Model, class World, class... Args>
trainer(Model, World&, Args...) -> trainer<Model, World, Args...>;

}  // namespace hetero
