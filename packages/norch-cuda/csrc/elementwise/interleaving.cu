#include "elementwise/interleaving.h"

#include <algorithm>

namespace norch::elementwise {
namespace {

/// Bytes of a line that a thread moves at once: those of all lines together are whole packets of 16 bytes.
template <class T, int LINES>
constexpr int BYTES = std::max(int(sizeof(T)), LINES == 3 ? 16 : 16 / LINES);

/// Pieces of some lines and of the one that has all of their elements. `pieces` counts the former.
struct Interleaving {
    Layout<2> pieces;  // in the output, in the input
    int64_t apart;     // bytes from a line to the next
};

/// An element of each line in turn is written, or (`IS_SPLIT`) read.
template <class T, int LINES, bool IS_SPLIT>
__global__ void __launch_bounds__(THREADS)
    interleave_kernel(const __grid_constant__ Interleaving p, char* out, const char* in) {
    constexpr int COUNT = BYTES<T, LINES> / int(sizeof(T)), PACKETS = LINES * BYTES<T, LINES> / 16;
    using Piece = Packet<T, COUNT>;
    using Whole = Packet<T, 16 / sizeof(T)>;
    const uint32_t i = blockIdx.x * THREADS + threadIdx.x;
    if (i >= p.pieces.numel) return;
    int64_t offset[2];
    p.pieces.offsets(i, offset);
    out += offset[0];
    in += offset[1];
    Piece lines[LINES];
    Whole whole[PACKETS];
    auto exchange = [&](const auto& move) {
#pragma unroll
        for (int l = 0; l < LINES; ++l)
#pragma unroll
            for (int k = 0; k < COUNT; ++k) {
                constexpr int N = 16 / int(sizeof(T));
                const int at = k * LINES + l;
                move(lines[l].v[k], whole[at / N].v[at % N]);
            }
    };
    if constexpr (IS_SPLIT) {
#pragma unroll
        for (int w = 0; w < PACKETS; ++w) whole[w] = *reinterpret_cast<const Whole*>(in + w * 16);
        exchange([](T& line, const T& all) { line = all; });
#pragma unroll
        for (int l = 0; l < LINES; ++l) *reinterpret_cast<Piece*>(out + l * p.apart) = lines[l];
    } else {
#pragma unroll
        for (int l = 0; l < LINES; ++l) lines[l] = *reinterpret_cast<const Piece*>(in + l * p.apart);
        exchange([](const T& line, T& all) { all = line; });
#pragma unroll
        for (int w = 0; w < PACKETS; ++w) *reinterpret_cast<Whole*>(out + w * 16) = whole[w];
    }
}

template <class T, int LINES, bool IS_SPLIT>
class Interleave final : public Kernel {
public:
    Interleave(const Interleaving& p, KernelPtr otherwise) : p_(p), otherwise_(std::move(otherwise)) {}

    void run(char* const* data, const Scalar* scalars) const override {
        constexpr size_t LINE = BYTES<T, LINES>;
        if (!is_aligned(data[0], IS_SPLIT ? LINE : 16) || !is_aligned(data[1], IS_SPLIT ? 16 : LINE))
            return otherwise_->run(data, scalars);
        launch_kernel("an interleaved copy", interleave_kernel<T, LINES, IS_SPLIT>,
                      unsigned(ceil_div(p_.pieces.numel, THREADS)), THREADS, p_, data[0], data[1]);
    }

private:
    Interleaving p_;
    KernelPtr otherwise_;
};

/// Where the dims of a layout lie that are the lines, and their elements.
struct Dims {
    int lines = 0, elements = 0;
    bool is_split = false;
};

Dims dims_of(const Layout<2>& layout, int64_t itemsize) {
    auto is_few = [&](int d) { return layout.size[d].divisor >= 2 && layout.size[d].divisor <= 4; };
    if (layout.ndim < 2 || layout.stride[0][0] != itemsize) return {};
    if (is_few(0) && layout.stride[1][1] == itemsize && layout.stride[0][1] == itemsize * layout.size[0].divisor)
        return {0, 1, false};
    for (int d = 1; d < layout.ndim; ++d)
        if (is_few(d) && layout.stride[1][d] == itemsize && layout.stride[1][0] == itemsize * layout.size[d].divisor)
            return {d, 0, true};
    return {};
}

template <class T, int LINES, bool IS_SPLIT>
KernelPtr of_lines(const Layout<2>& layout, const Dims& dims, KernelPtr& otherwise) {
    constexpr int64_t LINE = BYTES<T, LINES>, COUNT = LINE / int64_t(sizeof(T));
    constexpr int64_t SIZE[2] = {IS_SPLIT ? LINE : 16, IS_SPLIT ? 16 : LINE};
    Interleaving p = {};
    p.apart = layout.stride[!IS_SPLIT][dims.lines];
    const uint32_t count = layout.size[dims.elements].divisor;
    if (count % COUNT || p.apart % LINE) return nullptr;
    p.pieces.numel = layout.numel / LINES / uint32_t(COUNT);
    for (int d = 0; d < layout.ndim; ++d) {
        if (d == dims.lines) continue;
        const int to = p.pieces.ndim++;
        const bool is_line = d == dims.elements;
        p.pieces.size[to] = is_line ? FastDivide(count / uint32_t(COUNT)) : layout.size[d];
        for (int k = 0; k < 2; ++k) {
            p.pieces.stride[k][to] = layout.stride[k][d] * (is_line ? COUNT : 1);  // which may be 0
            if (p.pieces.stride[k][to] % SIZE[k]) return nullptr;
        }
    }
    return std::make_unique<Interleave<T, LINES, IS_SPLIT>>(p, std::move(otherwise));
}

}  // namespace

KernelPtr interleave(const Layout<2>& layout, int64_t itemsize, KernelPtr otherwise) {
    const Dims dims = dims_of(layout, itemsize);
    if (dims.lines == dims.elements) return otherwise;
    const uint32_t lines = layout.size[dims.lines].divisor;
    KernelPtr found = visit_bits(itemsize, [&]<class T>(Tag<T>) -> KernelPtr {
        auto of = [&]<int LINES>(std::integral_constant<int, LINES>) {
            return dims.is_split ? of_lines<T, LINES, true>(layout, dims, otherwise)
                                 : of_lines<T, LINES, false>(layout, dims, otherwise);
        };
        if (lines == 2) return of(std::integral_constant<int, 2>{});
        if (lines == 3) return of(std::integral_constant<int, 3>{});
        return of(std::integral_constant<int, 4>{});
    });
    return found ? std::move(found) : std::move(otherwise);
}

}  // namespace norch::elementwise
