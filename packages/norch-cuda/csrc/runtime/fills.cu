#include "runtime/fills.h"

#include <vector>

#include "runtime/device.cuh"

namespace norch {
namespace {

constexpr size_t LARGEST_FILL = size_t(1) << 20;  // bytes: of more, the memset itself is what takes time
const char* const RECORDING_FILLS = "recording a fill";

/// `pattern` is the value repeated to 4 bytes.
__global__ void __launch_bounds__(THREADS) fill_kernel(char* to, uint32_t pattern, uint32_t bytes, bool has_words) {
    const uint32_t i = blockIdx.x * THREADS + threadIdx.x;
    if (has_words) {
        if (i < bytes / 4) reinterpret_cast<uint32_t*>(to)[i] = pattern;
    } else if (i < bytes) {
        to[i] = char(pattern >> (i % 4 * 8));
    }
}

struct Neighbours {
    std::vector<cudaGraphNode_t> nodes;
    std::vector<cudaGraphEdgeData> edges;

    template <class Ask>
    Neighbours(cudaGraphNode_t node, const Ask& ask) {
        size_t count = 0;
        check(ask(node, nullptr, nullptr, &count), RECORDING_FILLS);
        nodes.resize(count), edges.resize(count);
        if (count) check(ask(node, nodes.data(), edges.data(), &count), RECORDING_FILLS);
    }
};

void make_kernel_of(cudaGraph_t graph, cudaGraphNode_t fill) {
    cudaMemsetParams p = {};
    check(cudaGraphMemsetNodeGetParams(fill, &p), RECORDING_FILLS);
    const size_t size = p.width * p.elementSize;
    if (p.height != 1 || size > LARGEST_FILL) return;
    const Neighbours before(fill, cudaGraphNodeGetDependencies), after(fill, cudaGraphNodeGetDependentNodes);
    char* to = static_cast<char*>(p.dst);
    uint32_t pattern = p.value;
    if (p.elementSize == 1) pattern = (p.value & 0xFF) * 0x01010101u;
    if (p.elementSize == 2) pattern = (p.value & 0xFFFF) * 0x00010001u;
    uint32_t bytes = uint32_t(size);
    bool has_words = size % 4 == 0 && is_aligned(to, 4);
    void* arguments[] = {&to, &pattern, &bytes, &has_words};
    cudaKernelNodeParams parameters = {};
    parameters.func = reinterpret_cast<void*>(fill_kernel);
    parameters.gridDim = dim3(unsigned(ceil_div(has_words ? size / 4 : size, THREADS)));
    parameters.blockDim = dim3(THREADS);
    parameters.kernelParams = arguments;
    cudaGraphNode_t node = nullptr;
    check(cudaGraphAddKernelNode(&node, graph, nullptr, 0, &parameters), RECORDING_FILLS);
    for (size_t i = 0; i < before.nodes.size(); ++i)
        check(cudaGraphAddDependencies(graph, &before.nodes[i], &node, &before.edges[i], 1), RECORDING_FILLS);
    for (size_t i = 0; i < after.nodes.size(); ++i)
        check(cudaGraphAddDependencies(graph, &node, &after.nodes[i], &after.edges[i], 1), RECORDING_FILLS);
    check(cudaGraphDestroyNode(fill), RECORDING_FILLS);
}

}  // namespace

void make_kernels_of_fills(cudaGraph_t graph) {
    size_t count = 0;
    check(cudaGraphGetNodes(graph, nullptr, &count), RECORDING_FILLS);
    std::vector<cudaGraphNode_t> nodes(count);
    if (count) check(cudaGraphGetNodes(graph, nodes.data(), &count), RECORDING_FILLS);
    for (cudaGraphNode_t node : nodes) {
        cudaGraphNodeType type;
        check(cudaGraphNodeGetType(node, &type), RECORDING_FILLS);
        if (type == cudaGraphNodeTypeMemset) make_kernel_of(graph, node);
    }
}

}  // namespace norch
