// argmax and argmin: the first of equals, the first NaN before all.
#include <algorithm>
#include <limits>

#include "reduction/reduce.cuh"
#include "runtime/allocator.h"
#include "runtime/families.h"

namespace norch::reduction {
namespace {

template <class A>
__device__ inline bool beats(bool is_max, A b, A a) {
    return (is_max ? b > a : b < a) || (b != b && a == a);
}

struct Search {
    Layout<2> kept;        // the outputs: in x, in out
    int64_t count, stride; // of what is searched: elements, bytes between them
    int64_t chunk;
    uint32_t chunks;
    Arrangement threads;
    bool is_max, is_contiguous;
};

/// Where results go: indices to the output, or the best of each chunk with its index to a row of parts. With `given`
/// the input is such parts.
template <class A>
struct Found {
    char* out;
    A* values;
    int64_t* indices;
    const int64_t* given;
};

template <class T>
__global__ void __launch_bounds__(THREADS) search_kernel(const __grid_constant__ Search s, const char* x,
                                                         const Found<folded<T>> found) {
    using A = folded<T>;
    constexpr int U = 8, VEC = PER_16_BYTES<T>, PACKETS = VEC > 4 ? 2 : 4;
    __shared__ A values[THREADS];
    __shared__ int64_t indices[THREADS];
    const uint32_t across = 1u << s.threads.log_across, along = THREADS >> s.threads.log_across;
    const uint32_t column = s.threads.is_along_reduced ? threadIdx.x / along : threadIdx.x & (across - 1);
    const uint32_t row = s.threads.is_along_reduced ? threadIdx.x & (along - 1) : threadIdx.x >> s.threads.log_across;
    const uint32_t blocks = (s.kept.numel + across - 1) >> s.threads.log_across;
    const uint32_t chunk = blockIdx.x / blocks;
    const uint32_t output = ((blockIdx.x - chunk * blocks) << s.threads.log_across) + column;
    const bool is_active = output < s.kept.numel;
    const int64_t begin = chunk * s.chunk;
    const uint32_t n = is_active ? uint32_t(min(s.chunk, s.count - begin)) : 0;
    int64_t offset[2] = {}, index = std::numeric_limits<int64_t>::max();
    A best = A(0);
    if (is_active) s.kept.offsets(output, offset);
    const char* from = x + offset[0] + begin * s.stride;
    const bool has_packets = s.is_contiguous && reinterpret_cast<uintptr_t>(from) % 16 == 0;
    const uint32_t packets = has_packets ? n / VEC : 0, first = row < packets ? row * VEC : packets * VEC + row;
    if (first < n) {
        auto at = [&](uint32_t i) { return A(upcast(*reinterpret_cast<const T*>(from + i * s.stride))); };
        best = at(first);
        uint32_t place = first;
        for (uint32_t i = row; i < packets; i += PACKETS * along) {
            Packet<T, VEC> y[PACKETS];
#pragma unroll
            for (int u = 0; u < PACKETS; ++u)
                if (i + u * along < packets)
                    y[u] = *reinterpret_cast<const Packet<T, VEC>*>(from + int64_t(i + u * along) * 16);
#pragma unroll
            for (int u = 0; u < PACKETS; ++u) {
                if (i + u * along >= packets) break;
#pragma unroll
                for (int j = 0; j < VEC; ++j) {
                    const A value = A(upcast(y[u].v[j]));
                    if (beats(s.is_max, value, best)) best = value, place = (i + u * along) * VEC + j;
                }
            }
        }
        for (uint32_t i = packets * VEC + row; i < n; i += U * along) {
            A y[U];
#pragma unroll
            for (int u = 0; u < U; ++u) y[u] = i + u * along < n ? at(i + u * along) : best;
#pragma unroll
            for (int u = 0; u < U; ++u)
                if (i + u * along < n && beats(s.is_max, y[u], best)) best = y[u], place = i + u * along;
        }
        index = begin + place;
        if (found.given) index = found.given[index * s.kept.numel + output];
    }
    const uint32_t at = row * across + column;
    values[at] = best;
    indices[at] = index;
    const bool is_in_warp = s.threads.is_along_reduced && along <= 32;
    for (uint32_t step = along / 2; step > 0; step /= 2) {
        if (is_in_warp) __syncwarp();
        else __syncthreads();
        if (row < step && indices[at + step * across] != std::numeric_limits<int64_t>::max()) {
            const A other = values[at + step * across];
            const int64_t place = indices[at + step * across];
            if (beats(s.is_max, other, best) || (!beats(s.is_max, best, other) && place < index)) {
                values[at] = best = other;
                indices[at] = index = place;
            }
        }
    }
    if (!is_active || row != 0) return;
    if (found.values) {
        const int64_t part = int64_t(chunk) * s.kept.numel + output;
        found.values[part] = best;
        found.indices[part] = index;
    } else {
        *reinterpret_cast<int64_t*>(found.out + offset[1]) = index;
    }
}

template <class T>
class ArgReduce final : public Kernel {
public:
    using A = folded<T>;

    ArgReduce(const ReductionLoops& loops, bool is_max) : kept_(cut<2>(loops.kept)), is_columns_(loops.is_columns) {
        s_.count = loops.reduced.numel;
        s_.stride = loops.reduced.ndim() ? loops.reduced.strides[0][0] : 0;
        s_.is_max = is_max;
        s_.is_contiguous = s_.stride == sizeof(T) && !is_columns_;
    }

    void run(char* const* data, const Scalar*) const override {
        for (const Piece<2>& piece : kept_) {
            Search s = s_;
            s.kept = piece.layout;
            char* out = data[0] + piece.start[1];
            const char* x = data[1] + piece.start[0];
            plan(s);
            if (s.chunks == 1) {
                launch<T>(s, x, {out, nullptr, nullptr, nullptr});
                continue;
            }
            const size_t parts = size_t(s.chunks) * piece.layout.numel;
            const Scratch<A> values(parts);
            const Scratch<int64_t> indices(parts);
            launch<T>(s, x, {nullptr, values.data(), indices.data(), nullptr});
            launch<A>(second(s), reinterpret_cast<char*>(values.data()), {out, nullptr, nullptr, indices.data()});
        }
    }

private:
    /// How many threads search for one output, and how many blocks.
    void plan(Search& s) const {
        constexpr int64_t MAX_CHUNK = int64_t(1) << 30;  // elements of a chunk
        const int64_t outputs = s.kept.numel, sms = multiprocessors();
        s.threads.is_along_reduced = !is_columns_;
        // Where there are outputs enough for all threads, few share one: to bring together what they found costs most.
        const bool is_many = outputs >= (is_columns_ ? 128 : 16) * sms;
        const int64_t each = is_many ? 32 : 4;
        if (!is_columns_) s.threads.log_across = 8 - log2_up(ceil_div(s.count, each), 8);
        else if (is_many && s.count <= 64) s.threads.log_across = 8;
        else s.threads.log_across = log2_up(outputs, outputs < 32 * sms && s.count <= 1024 ? 3 : 5);
        const int64_t blocks = ceil_div(outputs, int64_t(1) << s.threads.log_across);
        const int64_t along = THREADS >> s.threads.log_across;
        int64_t chunks = 1;
        if (s.count > 64 * along) chunks = std::min(ceil_div(s.count, 16 * along), ceil_div(16 * sms, blocks));
        s.chunk = ceil_div(ceil_div(s.count, std::max(chunks, ceil_div(s.count, MAX_CHUNK))), 64) * 64;
        s.chunks = uint32_t(ceil_div(s.count, s.chunk));
    }

    static Search second(const Search& first) {
        Search s = first;
        int64_t stride = sizeof(A);
        for (int d = 0; d < s.kept.ndim; ++d) {
            s.kept.stride[0][d] = stride;
            stride *= s.kept.size[d].divisor;
        }
        s.stride = stride;
        s.count = s.chunk = first.chunks;
        s.is_contiguous = false;
        s.chunks = 1;
        s.threads = {log2_up(s.kept.numel, s.count > 64 ? 3 : 5), false};
        return s;
    }

    template <class In>
    static void launch(const Search& s, const char* x, const Found<A>& found) {
        const unsigned blocks = unsigned(ceil_div(s.kept.numel, int64_t(1) << s.threads.log_across) * s.chunks);
        launch_kernel("argmax or argmin", search_kernel<In>, blocks, THREADS, s, x, found);
    }

    std::vector<Piece<2>> kept_;
    Search s_ = {};
    bool is_columns_;
};

template <bool is_max>
KernelPtr search(const Request& request) {
    const std::vector<int64_t>& dims = request.attrs.integers("dims");
    if (dims.size() > 1) throw std::invalid_argument(request.op + " is along one dim");
    if (request.operands[0].dtype != DType::i64) throw std::invalid_argument(request.op + " gives int64");
    const ReductionLoops loops = reduction_loops(request.operands[0], request.operands[1], dims);
    if (loops.kept.numel == 0 || loops.reduced.numel == 0) return make_kernel(0, [](char* const*, const Scalar*) {});
    return visit_device(request.operands[1].dtype, [&]<class T>(Tag<T>) -> KernelPtr {
        return std::make_unique<ArgReduce<T>>(loops, is_max);
    });
}

}  // namespace

void add_argreductions(Registry& registry) {
    registry["argmax"] = search<true>;
    registry["argmin"] = search<false>;
}

}  // namespace norch::reduction
