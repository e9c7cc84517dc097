// Recording what a stream is given, to give it again as a whole.
#pragma once

#include "runtime/runtime.h"

namespace norch {

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

private:
    Stream* stream_ = nullptr;
    Arena* arena_ = nullptr;    // the recording's
    Arena* outside_ = nullptr;  // the stream's own, meanwhile
    cudaGraphExec_t executable_ = nullptr;
    int device_ = 0;
};

}  // namespace norch
