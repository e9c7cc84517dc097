#include "runtime/graph.h"

#include "runtime/allocator.h"
#include "runtime/fills.h"
#include "runtime/late.h"
#include "runtime/recording.h"

namespace norch {
namespace {

/// The graphs being recorded.
std::vector<Graph*>& recording() {
    static std::vector<Graph*> all;
    return all;
}

/// Whether a call of an op gets other numbers each time that Python makes it.
bool changes(const std::string& op) {
    return op == "dropout" || op == "random" || (op.size() > 5 && op.compare(op.size() - 5, 5, "_step") == 0);
}

/// Names the op that has ended a recording.
void check_recording(const std::string& op) {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusActive;
    cudaStreamIsCapturing(launch_stream().handle, &status);
    if (status == cudaStreamCaptureStatusInvalidated)
        throw std::runtime_error(op + " cannot be recorded in a graph: its work waits for the device");
}

/// The nodes of the launches that were noted, the last that the stream was given; none where they are others.
std::vector<cudaGraphNode_t> noted_nodes(cudaStream_t stream) {
    cudaStreamCaptureStatus status;
    const cudaGraphNode_t* last = nullptr;
    const cudaGraphEdgeData* edges = nullptr;
    size_t count = 0;
    std::vector<cudaGraphNode_t> nodes(notes().count);
    if (cudaStreamGetCaptureInfo(stream, &status, nullptr, nullptr, &last, &edges, &count) != cudaSuccess) return {};
    for (size_t k = nodes.size(); k-- > 0;) {
        cudaKernelNodeParams parameters = {};
        if (count != 1 || cudaGraphKernelNodeGetParams(last[0], &parameters) != cudaSuccess) return {};
        const LaunchNotes::Note& note = notes().notes[k];
        if (parameters.gridDim.x != note.blocks.x || parameters.blockDim.x != note.threads.x) return {};
        nodes[k] = last[0];
        if (k == 0) break;
        cudaGraphNode_t before = nullptr;
        cudaGraphEdgeData edge = {};
        count = 1;
        if (cudaGraphNodeGetDependencies(nodes[k], &before, &edge, &count) != cudaSuccess) return {};
        nodes[k - 1] = before;
        last = &nodes[k - 1];
    }
    return nodes;
}

}  // namespace

void Graph::run_recorded(const Launch& launch, char* const* data, const Scalar* scalars) {
    Graph* graph = nullptr;
    if (is_recorded(launch_stream()))
        for (Graph* one : recording())
            if (one->device_ == launch_stream().device) graph = one;
    if (!graph || !launch.op) return launch.kernel->run(data, scalars);
    if (!changes(*launch.op)) {
        launch.kernel->run(data, scalars);
        return check_recording(*launch.op);
    }
    {
        const Noting noting(notes(), true);
        launch.kernel->run(data, scalars);
    }
    check_recording(*launch.op);
    auto* object = const_cast<PyObject*>(reinterpret_cast<const PyObject*>(&launch));
    Py_INCREF(object);
    const auto count = size_t(launch.count);
    graph->calls_.push_back({object, {data, data + count}, {scalars, scalars + count}, noted_nodes(stream_handle())});
    cudaGetLastError();
}

void Graph::feed(size_t which, const std::vector<Scalar>& scalars) {
    RecordedCall& call = calls_.at(which);
    if (call.nodes.empty() || !executable_) throw std::invalid_argument("this call of a graph cannot be given numbers");
    const Launch& launch = call.kernel();
    bool is_same = true;
    for (int k = 0; k < launch.count; ++k)
        if (launch.slots[k].is_scalar) is_same &= scalars[size_t(k)].i == call.scalars[size_t(k)].i;
    if (is_same) return;
    set_launch_stream(*stream_);
    const Noting noting(notes(), false);
    launch.kernel->run(call.data.data(), scalars.data());
    if (notes().count != call.nodes.size()) throw std::invalid_argument("this call of a graph now is other launches");
    for (size_t k = 0; k < call.nodes.size(); ++k) {
        const cudaKernelNodeParams parameters = parameters_of(notes().notes[k]);
        check(cudaGraphExecKernelNodeSetParams(executable_, call.nodes[k], &parameters), "giving a graph other numbers");
    }
    call.scalars = scalars;
}

void Graph::forget() {
    auto& all = recording();
    all.erase(std::remove(all.begin(), all.end(), this), all.end());
    if (all.empty()) norch::run_recorded = nullptr;
}

Graph::~Graph() {
    forget();
    for (const RecordedCall& call : calls_) Py_DECREF(call.launch);
    if (stream_ && stream_->is_capturing) {
        cudaGraph_t unfinished = nullptr;
        cudaStreamEndCapture(stream_->handle, &unfinished);
        if (unfinished) cudaGraphDestroy(unfinished);
        stream_->is_capturing = false;
        stream_->arena = outside_;
        release_postponed();
    }
    if (executable_) {
        const RelaxedCapture relaxed;
        cudaGraphExecDestroy(executable_);
    }
    if (graph_) cudaGraphDestroy(graph_);
    if (arena_) retire_arena(arena_);
    cudaGetLastError();
}

void Graph::begin() {
    if (arena_) throw std::invalid_argument("this graph was recorded already");
    Stream& stream = current_stream(current_device());
    if (!stream.handle)
        throw std::invalid_argument("the default stream cannot be recorded; use `with norch.cuda.stream(...)`");
    if (stream.is_capturing) throw std::invalid_argument("the current stream is being recorded already");
    settle_late_work();
    bind(stream.device);
    check(cudaStreamBeginCapture(stream.handle, cudaStreamCaptureModeThreadLocal), "starting to record a graph");
    stream_ = &stream;
    device_ = stream.device;
    arena_ = make_arena(stream.device, &stream);
    keep_free_blocks(arena_, true);
    outside_ = stream.arena;
    stream.arena = arena_;
    stream.is_capturing = true;
    recording().push_back(this);
    norch::run_recorded = run_recorded;
}

void Graph::end() {
    if (!stream_ || !stream_->is_capturing) throw std::invalid_argument("this graph is not being recorded");
    forget();
    const cudaError_t error = cudaStreamEndCapture(stream_->handle, &graph_);
    stream_->is_capturing = false;
    stream_->arena = outside_;
    release_postponed();
    check(error, "recording a graph");
    make_kernels_of_fills(graph_);
    check(cudaGraphInstantiate(&executable_, graph_, 0), "making a graph executable");
}

void Graph::replay() {
    if (!executable_) throw std::invalid_argument("this graph has not been recorded");
    settle_late_work();
    bind(device_);
    check(cudaGraphLaunch(executable_, current_stream(device_).handle), "running a graph");
}

}  // namespace norch
