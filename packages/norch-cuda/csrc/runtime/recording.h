// What recording a program takes: streams to record from, captures, notes of launches.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "runtime/allocator.h"
#include "runtime/runtime.h"

namespace norch {

/// Streams that programs have been recorded from, with the streams that those last ran on: memory of a home's arena is
/// free once that is done.
struct Home {
    Stream* stream;
    Stream* last;
};
inline std::vector<Home>& free_homes() {
    static std::vector<Home> all;
    return all;
}

inline Stream& take_home(int device) {
    auto& homes = free_homes();
    auto found = std::find_if(homes.begin(), homes.end(), [&](const Home& home) {
        return home.stream->device == device && !is_recorded(*home.last);
    });
    if (found == homes.end()) {
        Stream& made = make_stream(device);
        made.is_programs = true;
        return made;
    }
    const Home home = *found;
    homes.erase(found);
    if (home.last != home.stream) wait_for(*home.stream, *home.last);
    return *home.stream;
}

/// Notes launches while it lives.
class Noting {
public:
    Noting(LaunchNotes& notes, bool makes_them) {
        notes.count = 0;
        notes.makes_them = makes_them;
        launch_notes = &notes;
    }
    ~Noting() { launch_notes = nullptr; }
};

inline LaunchNotes& notes() {
    static LaunchNotes all;
    return all;
}

inline cudaKernelNodeParams parameters_of(LaunchNotes::Note& note) {
    cudaKernelNodeParams out = {};
    out.func = const_cast<void*>(note.kernel);
    out.gridDim = note.blocks;
    out.blockDim = note.threads;
    out.sharedMemBytes = unsigned(note.shared);
    out.kernelParams = note.arguments.data();
    return out;
}

/// A stream that is recorded, and ends that.
class Capture {
public:
    /// Into a graph of its own, or after `last` into `graph`.
    explicit Capture(Stream& stream) : stream_(stream) {
        check(cudaStreamBeginCapture(stream.handle, cudaStreamCaptureModeThreadLocal), WHAT);
        stream.is_capturing = true;
    }
    Capture(Stream& stream, cudaGraph_t graph, const std::vector<cudaGraphNode_t>& last) : stream_(stream), is_part_(true) {
        check(cudaStreamBeginCaptureToGraph(stream.handle, graph, last.data(), nullptr, last.size(),
                                            cudaStreamCaptureModeThreadLocal), WHAT);
        stream.is_capturing = true;
    }
    ~Capture() {
        if (!stream_.is_capturing) return;
        cudaGraph_t unfinished = nullptr;
        cudaStreamEndCapture(stream_.handle, &unfinished);
        stream_.is_capturing = false;
        if (unfinished && !is_part_) cudaGraphDestroy(unfinished);
        cudaGetLastError();
        release_postponed();
    }
    Capture(const Capture&) = delete;
    Capture& operator=(const Capture&) = delete;

    /// What comes next comes after these.
    std::vector<cudaGraphNode_t> last() const {
        cudaStreamCaptureStatus status;
        const cudaGraphNode_t* nodes = nullptr;
        const cudaGraphEdgeData* edges = nullptr;
        size_t count = 0;
        check(cudaStreamGetCaptureInfo(stream_.handle, &status, nullptr, nullptr, &nodes, &edges, &count), WHAT);
        return {nodes, nodes + count};
    }
    cudaGraph_t end() {
        cudaGraph_t graph = nullptr;
        const cudaError_t error = cudaStreamEndCapture(stream_.handle, &graph);
        stream_.is_capturing = false;
        release_postponed();
        check(error, WHAT);
        return graph;
    }

private:
    static constexpr const char* WHAT = "recording a program";
    Stream& stream_;
    bool is_part_ = false;
};

struct DestroyGraph {
    using pointer = cudaGraph_t;
    void operator()(cudaGraph_t graph) const { cudaGraphDestroy(graph); }
};
using OwnGraph = std::unique_ptr<cudaGraph_t, DestroyGraph>;

}  // namespace norch
