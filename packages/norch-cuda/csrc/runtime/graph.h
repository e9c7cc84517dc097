// Recording what a stream is given, to give it again as a whole.
#pragma once

#include <Python.h>

#include <string>
#include <vector>

#include "common/launch.h"
#include "runtime/runtime.h"

namespace norch {

/// A call whose numbers are others in each replay, a draw or an optimiser's step, and its nodes, one for each launch.
struct RecordedCall {
    PyObject* launch;  // owned
    std::vector<char*> data;
    std::vector<Scalar> scalars;
    std::vector<cudaGraphNode_t> nodes;  // none where they could not be told

    const Launch& kernel() const { return *reinterpret_cast<const Launch*>(launch); }
};

/// A CUDA graph with the memory that its kernels use.
class Graph {
public:
    Graph() = default;
    ~Graph();
    Graph(const Graph&) = delete;
    Graph& operator=(const Graph&) = delete;

    /// Starts recording on the current stream of the current device, which must not be a default stream.
    void begin();
    void end();
    /// Runs what was recorded on the current stream of its device.
    void replay();

    const std::vector<RecordedCall>& calls() const { return calls_; }
    /// Gives a call other scalars, for replays from now on.
    void feed(size_t call, const std::vector<Scalar>& scalars);

private:
    static void run_recorded(const Launch& launch, char* const* data, const Scalar* scalars);
    void forget();

    Stream* stream_ = nullptr;
    Arena* arena_ = nullptr;    // the recording's
    Arena* outside_ = nullptr;  // the stream's own, meanwhile
    cudaGraph_t graph_ = nullptr;
    cudaGraphExec_t executable_ = nullptr;
    int device_ = 0;
    std::vector<RecordedCall> calls_;
};

}  // namespace norch
