#include "runtime/graph_program.h"

#include <algorithm>
#include <utility>

#include "common/buffer.h"
#include "common/launch.h"
#include "runtime/fills.h"
#include "runtime/recording.h"

namespace norch {
namespace {

/// Of recording a program: another thread that waits for the device ends a recording.
constexpr int ATTEMPTS = 3;

constexpr size_t LANES = 3;  // more bring nothing to an MLP's or a small GPT's step
/// Bytes of a call's operands from which it fills the device: two such at once are slower than one after the other.
constexpr int64_t LARGE = int64_t(8) << 20;
/// Up to so many a call that waits for nothing, such as the fill of a gradient of 1, takes less than joining its lane would.
constexpr int64_t SMALL = int64_t(4) << 10;
constexpr size_t MAX_ORDERED = 4096;  // calls: the work of ordering more grows with their square

/// Bytes that a call reads or writes.
struct Range {
    const char *begin, *end;
    bool is_written;
};
bool conflict(const std::vector<Range>& a, const std::vector<Range>& b) {
    for (const Range& x : a)
        for (const Range& y : b)
            if ((x.is_written || y.is_written) && x.begin < y.end && y.begin < x.end) return true;
    return false;
}

bool are_same(const Scalar& a, const Scalar& b) { return a.i == b.i; }

}  // namespace

GraphProgram::GraphProgram(std::unique_ptr<Plan> plan, std::vector<bool> is_bound)
    : plan_(std::move(plan)), is_bound_(std::move(is_bound)), lanes_{&take_home(plan_->index)}, last_(lanes_[0]) {
    most_lanes_ = plan_->steps.size() > MAX_ORDERED ? 1 : LANES;
    const auto places = size_t(plan_->places) + 1;
    needs_.resize(places);
    for (const Use& use : plan_->uses) needs_[size_t(use.place)] = use.needs;
    base_.resize(places);
    data_.resize(plan_->most_operands);
    own_.resize(plan_->most_operands);
    is_bound_.resize(places, true);
    is_bound_[0] = true;
    find_changing();
}

GraphProgram::~GraphProgram() {
    forget_graph();
    if (scratch_.data) release_block(scratch_);
    for (Stream* lane : lanes_) {
        keep_free_blocks(lane->arena, false);
        free_homes().push_back({lane, last_});
    }
    cudaGetLastError();
}

void GraphProgram::release() {
    if (!scratch_.data || is_recorded(*last_)) return;
    if (last_ != lanes_[0]) wait_for(*lanes_[0], *last_);
    forget_graph();
    for (Stream* lane : lanes_) keep_free_blocks(lane->arena, false);
    release_block(scratch_);
    scratch_ = {};
}

void GraphProgram::forget_graph() {
    const RelaxedCapture relaxed;
    if (executable_) cudaGraphExecDestroy(executable_);  // once it has run
    if (graph_) cudaGraphDestroy(graph_);
    executable_ = nullptr;
    graph_ = nullptr;
}

/// The calls that get a fed number or a buffer of a place that is not bound.
void GraphProgram::find_changing() {
    changing_.clear();
    by_place_.assign(base_.size(), {});
    by_number_.assign(plan_->numbers.size(), {});
    for (size_t i = 0; i < plan_->steps.size(); ++i) {
        const Step& step = plan_->steps[i];
        const size_t next = changing_.size();
        bool changes = false;
        auto note = [&](std::vector<size_t>& users) {
            if (users.empty() || users.back() != next) users.push_back(next);
            changes = true;
        };
        for (int k = 0; k < step.operand_count; ++k) {
            const auto place = size_t(plan_->references[step.operands + size_t(k)].place);
            if (!is_bound_[place]) note(by_place_[place]);
        }
        for (int k = 0; k < step.feed_count; ++k) note(by_number_[plan_->feeds[step.feeds + size_t(k)].number]);
        if (changes) {
            changing_.emplace_back();
            changing_.back().step = i;
        }
    }
}

void GraphProgram::call(size_t step) {
    at_ = step;
    plan_->call(plan_->steps[step], base_.data(), fed_.data(), data_.data(), own_.data());
}

void GraphProgram::run_directly() {
    for (size_t i = 0; i < plan_->steps.size(); ++i) call(i);
}

/// Each call waits for those before that it shares memory with, unless what it waits for anyway does; and for the one
/// before in its lane.
GraphProgram::Order GraphProgram::order() {
    const size_t count = plan_->steps.size();
    Order out{std::vector<std::vector<size_t>>(count), std::vector<size_t>(count)};
    if (most_lanes_ == 1) {
        for (size_t i = 1; i < count; ++i) out.after[i] = {i - 1};
        return out;
    }
    std::vector<std::vector<Range>> ranges(count);
    std::vector<std::vector<bool>> before(count, std::vector<bool>(count));  // before[i][j]: i comes after j
    std::vector<size_t> last;                                               // of each lane
    size_t large = count;                                                   // the last large one
    for (size_t i = 0; i < count; ++i) {
        const Step& step = plan_->steps[i];
        const Launch* launch = reinterpret_cast<const Launch*>(plan_->kernels[i].object);
        int64_t bytes = 0;
        for (int k = 0; k < step.operand_count; ++k) {
            const Reference& reference = plan_->references[step.operands + size_t(k)];
            if (launch->slots[k].is_scalar || !launch->slots[k].extent) continue;
            const char* begin = base_[size_t(reference.place)] + reference.offset;
            bytes += launch->slots[k].extent;
            ranges[i].push_back({begin, begin + launch->slots[k].extent, !step.kernel->written || k < step.kernel->written});
        }
        auto wait_for = [&](size_t j) {
            out.after[i].push_back(j);
            for (size_t k = 0; k < j; ++k)
                if (before[j][k]) before[i][k] = true;
            before[i][j] = true;
        };
        for (size_t j = i; j-- > 0;)
            if (!before[i][j] && conflict(ranges[i], ranges[j])) wait_for(j);
        if (i > 0 && out.after[i].empty() && bytes <= SMALL) wait_for(i - 1);
        if (bytes >= LARGE) {
            if (large < i && !before[i][large]) wait_for(large);
            large = i;
        }
        size_t lane = last.size();
        for (size_t l = 0; l < last.size(); ++l)  // the lane whose last call it waits for and is the latest, or a new one
            if (before[i][last[l]] && (lane == last.size() || last[l] > last[lane])) lane = l;
        if (lane == last.size() && lane == most_lanes_) {
            lane = size_t(std::min_element(last.begin(), last.end()) - last.begin());
            wait_for(last[lane]);
        }
        if (lane == last.size()) last.push_back(i);
        last[lane] = i;
        out.lane[i] = lane;
    }
    return out;
}

/// Makes the graph of this run.
void GraphProgram::record() {
    forget_graph();
    const Order order = this->order();
    for (size_t lane : order.lane)
        if (lane == lanes_.size()) lanes_.push_back(&take_home(plan_->index));
    for (Stream* lane : lanes_) keep_free_blocks(lane->arena, true);
    for (size_t l = 1; l < lanes_.size(); ++l) wait_for(*last_, *lanes_[l]);  // those whose memory it was are done
    bind(plan_->index);
    cudaGraph_t whole = nullptr;
    check(cudaGraphCreate(&whole, 0), "making a graph");
    OwnGraph graph(whole);
    std::vector<std::vector<cudaGraphNode_t>> last(plan_->steps.size());  // of each call
    auto changing = changing_.begin();
    for (size_t i = 0; i < plan_->steps.size(); ++i) {
        Stream& lane = *lanes_[order.lane[i]];
        set_launch_stream(lane);
        std::vector<cudaGraphNode_t> after;
        for (size_t j : order.after[i])
            for (cudaGraphNode_t node : last[j])
                if (std::find(after.begin(), after.end(), node) == after.end()) after.push_back(node);
        if (changing == changing_.end() || changing->step != i) {
            Capture capture(lane, whole, after);
            call(i);
            last[i] = capture.last();
            capture.end();
            continue;
        }
        Capture capture(lane);
        {
            const Noting noting(notes(), true);
            call(i);
        }
        const OwnGraph part(capture.end());
        size_t count = 0;
        check(cudaGraphGetNodes(part.get(), nullptr, &count), "asking for a graph's nodes");
        changing->nodes.clear();
        changing->whole = nullptr;
        changing->lane = &lane;
        last[i] = after;
        cudaGraphNode_t node = nullptr;
        if (count == notes().count) {
            for (size_t k = 0; k < count; ++k) {
                const cudaKernelNodeParams parameters = parameters_of(notes().notes[k]);
                check(cudaGraphAddKernelNode(&node, whole, last[i].data(), last[i].size(), &parameters),
                      "making a graph's node");
                changing->nodes.push_back(node);
                last[i] = {node};
            }
        } else {
            make_kernels_of_fills(part.get());
            check(cudaGraphAddChildGraphNode(&node, whole, after.data(), after.size(), part.get()), "making a graph's node");
            changing->whole = node;
            last[i] = {node};
        }
        ++changing;
    }
    make_kernels_of_fills(whole);
    check(cudaGraphInstantiate(&executable_, whole, 0), "making a graph executable");
    graph_ = graph.release();
    overlaps_ = false;
    for (size_t place = 1; place < base_.size(); ++place) overlaps_ |= share_memory(place);
    ++recorded;
}

/// Whether a place's buffer has memory of another place's.
bool GraphProgram::share_memory(size_t place) const {
    if (most_lanes_ == 1 || !needs_[place]) return false;
    for (size_t other = 1; other < base_.size(); ++other)
        if (other != place && needs_[other] && base_[place] < base_[other] + needs_[other] &&
            base_[other] < base_[place] + needs_[place])
            return true;
    return false;
}

/// Marks the calls whose arguments are others than in the graph. Returns false where it must be made again: a bound place
/// has another buffer, and counts as not bound from then on; or buffers share memory, which calls are ordered by.
bool GraphProgram::mark_changes() {
    bool fits = true;
    auto mark = [&](const std::vector<size_t>& users) {
        for (size_t user : users) changing_[user].is_stale = true;
    };
    for (size_t place = 0; place < base_.size(); ++place) {
        if (base_[place] == recorded_base_[place]) continue;
        if (is_bound_[place]) {
            is_bound_[place] = false;
            fits = false;
        }
        fits = fits && !overlaps_ && !share_memory(place);
        mark(by_place_[place]);
    }
    for (size_t i = 0; i < fed_.size(); ++i)
        if (!are_same(fed_[i], recorded_fed_[i])) mark(by_number_[i]);
    if (!fits) find_changing();
    return fits;
}

/// Gives a call's nodes the arguments of this run. Returns false where it now is other launches.
bool GraphProgram::change(const Changing& changing) {
    set_launch_stream(*changing.lane);
    ++changed;
    if (changing.whole) {
        Capture capture(*changing.lane);
        call(changing.step);
        const OwnGraph part(capture.end());
        make_kernels_of_fills(part.get());
        if (cudaGraphExecChildGraphNodeSetParams(executable_, changing.whole, part.get()) == cudaSuccess) return true;
    } else {
        const Noting noting(notes(), false);
        try {
            call(changing.step);
        } catch (const LaunchNotNoted&) {
            return false;
        }
        if (notes().count != changing.nodes.size()) return false;
        cudaError_t error = cudaSuccess;
        for (size_t k = 0; k < changing.nodes.size() && error == cudaSuccess; ++k) {
            const cudaKernelNodeParams parameters = parameters_of(notes().notes[k]);
            error = cudaGraphExecKernelNodeSetParams(executable_, changing.nodes[k], &parameters);
        }
        if (error == cudaSuccess) return true;
    }
    cudaGetLastError();
    return false;
}

/// Runs the graph, with this run's arguments.
void GraphProgram::launch(Stream& stream) {
    bool fits = executable_ && mark_changes();
    try {
        for (size_t i = 0; fits && i < changing_.size(); ++i)
            if (changing_[i].is_stale) fits = change(changing_[i]);
    } catch (...) {
        forget_graph();  // it has the arguments of two runs
        throw;
    }
    for (Changing& changing : changing_) changing.is_stale = false;
    recorded_base_ = base_;
    recorded_fed_ = fed_;
    if (!fits) {
        try {
            record();
        } catch (const OutOfMemory&) {  // recording gives no cached memory back
            empty_cache(plan_->index);
            record();
        } catch (const std::exception&) {
            forget_graph();
            is_direct_ = ++failures_ == ATTEMPTS;
            cudaGetLastError();
            set_launch_stream(stream);
            return run_directly();
        }
    }
    at_ = plan_->steps.size();
    check(cudaGraphLaunch(executable_, stream.handle), "running a graph");
}

/// Before anything of a run is there: Python may collect its garbage meanwhile, and other threads run the program.
void GraphProgram::take_scratch() {
    if (!plan_->scratch || scratch_.data) return;
    const Block taken = allocate_block(*lanes_[0], size_t(plan_->scratch), collect_garbage);
    if (scratch_.data) release_block(taken);
    else scratch_ = taken;
}

bool GraphProgram::run(PyObject* buffers, PyObject* numbers) {
    at_ = plan_->steps.size();
    try {
        take_scratch();
        Stream& stream = current_stream(plan_->index);
        if (is_recorded(stream)) throw std::invalid_argument("a program cannot be recorded in a graph of norch.cuda.graph");
        if (is_recorded(*last_)) throw std::invalid_argument("the stream that a program last ran on is being recorded");
        set_launch_stream(stream);
        LaunchScope scope;
        if (!plan_->numbers_of(numbers, fed_) || !plan_->addresses(buffers, base_.data(), scope)) return false;
        if (launch_stream().device != plan_->index)
            throw std::invalid_argument("a program for cuda:" + std::to_string(plan_->index) + " got buffers of cuda:" +
                                        std::to_string(launch_stream().device));
        base_[0] = scratch_.data;
        if (last_ != &stream) wait_for(stream, *last_);
        last_ = &stream;
        if (has_run_ && !is_direct_)
            launch(stream);
        else
            run_directly();
        has_run_ = true;
        return true;
    } catch (...) {
        raise_current();
        if (at_ < plan_->steps.size()) note_call(at_);
        return false;
    }
}

}  // namespace norch
