// Programs (norch.backend.Backend.program) as CUDA graphs.
#pragma once

#include <Python.h>

#include <vector>

#include "common/program.h"
#include "runtime/allocator.h"
#include "runtime/runtime.h"

namespace norch {

/// The calls of a program as a CUDA graph. What differs from run to run, a fed number or a buffer that is not bound, is put
/// into the nodes of the calls that get it, where it is another than before: no node reads it from memory, none copies.
///
/// Calls that touch no memory of each other's run side by side, on a few lanes: each has a stream that its calls are
/// recorded from, whose arena and semaphore are theirs, so that those of one lane come one after the other.
///
/// The first run makes the calls one by one (which loads kernels and chooses algorithms, as a recording must not), the
/// second one records them. Calls that cannot be recorded stay as they are.
class GraphProgram {
public:
    /// is_bound: of each place.
    GraphProgram(std::unique_ptr<Plan> plan, std::vector<bool> is_bound);
    ~GraphProgram();
    GraphProgram(const GraphProgram&) = delete;
    GraphProgram& operator=(const GraphProgram&) = delete;

    /// Returns false with a Python error set.
    bool run(PyObject* buffers, PyObject* numbers);
    /// Gives the scratch memory back, until the next run. The graph, which has its address, goes with it.
    void release();
    /// How many graphs were made, and how many nodes got new arguments.
    int recorded = 0;
    int64_t changed = 0;

private:
    /// A call that may get other arguments, and its nodes: one for each launch or, where not all could be noted, one of
    /// a graph of its own.
    struct Changing {
        size_t step;
        std::vector<cudaGraphNode_t> nodes;
        cudaGraphNode_t whole = nullptr;
        Stream* lane = nullptr;
        bool is_stale = false;
    };
    /// Of a graph being made: what each call waits for, and its lane.
    struct Order {
        std::vector<std::vector<size_t>> after;
        std::vector<size_t> lane;
    };

    void find_changing();
    Order order();
    bool share_memory(size_t place) const;
    void call(size_t step);
    void take_scratch();
    void run_directly();
    void record();
    void forget_graph();
    bool mark_changes();
    bool change(const Changing& call);
    void launch(Stream& stream);

    std::unique_ptr<Plan> plan_;
    std::vector<bool> is_bound_;
    std::vector<Stream*> lanes_;  // the first one owns the scratch memory
    Stream* last_;                // of the last run
    Block scratch_;
    cudaGraph_t graph_ = nullptr;
    cudaGraphExec_t executable_ = nullptr;
    bool has_run_ = false, is_direct_ = false, overlaps_ = false;
    int failures_ = 0;
    size_t at_ = 0;  // the call being made
    size_t most_lanes_;
    std::vector<int64_t> needs_;  // bytes of each place

    std::vector<Changing> changing_;
    std::vector<std::vector<size_t>> by_place_, by_number_;  // whose arguments they are: indices of changing_
    std::vector<char*> base_, recorded_base_;                // of this run; in the graph
    std::vector<Scalar> fed_, recorded_fed_;
    std::vector<char*> data_;
    std::vector<Scalar> own_;
};

}  // namespace norch
