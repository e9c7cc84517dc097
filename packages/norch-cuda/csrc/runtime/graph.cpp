#include "runtime/graph.h"

#include "runtime/allocator.h"
#include "runtime/late.h"

namespace norch {

Graph::~Graph() {
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
}

void Graph::end() {
    if (!stream_ || !stream_->is_capturing) throw std::invalid_argument("this graph is not being recorded");
    cudaGraph_t graph = nullptr;
    cudaError_t error = cudaStreamEndCapture(stream_->handle, &graph);
    stream_->is_capturing = false;
    stream_->arena = outside_;
    release_postponed();
    check(error, "recording a graph");
    error = cudaGraphInstantiate(&executable_, graph, 0);
    cudaGraphDestroy(graph);
    check(error, "making a graph executable");
}

void Graph::replay() {
    if (!executable_) throw std::invalid_argument("this graph has not been recorded");
    settle_late_work();
    bind(device_);
    check(cudaGraphLaunch(executable_, current_stream(device_).handle), "running a graph");
}

}  // namespace norch
