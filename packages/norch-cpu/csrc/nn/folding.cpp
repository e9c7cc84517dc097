// im2col: the windows of images as columns; col2im: columns added up in their places. A row at a time.
#include <algorithm>

#include "common/staging.h"
#include "runtime/families.h"
#include "runtime/parallel.h"

namespace norch::nn {
namespace {

/// The windows along one dim of the images.
struct Dim {
    /// Of one tap: the windows [begin, end) for which it sees an element of the image, and which the first window's would be.
    struct Tap {
        int64_t begin, end, first;
    };
    int64_t size, step, windows;
    std::vector<Tap> taps;

    Dim(const Request& r, const Operand& images, size_t d)
        : size(images.shape[2 + d]), step(r.attrs.integers("stride")[d]), taps(size_t(r.attrs.integers("kernel")[d])) {
        const int64_t gap = r.attrs.integers("dilation")[d], pad = r.attrs.integers("padding")[d];
        windows = (size + 2 * pad - gap * (int64_t(taps.size()) - 1) - 1) / step + 1;
        int64_t first = -pad;
        for (Tap& tap : taps) {
            const int64_t begin = std::clamp<int64_t>((step - 1 - first) / step, 0, windows);
            tap = {begin, first < size ? std::clamp((size - 1 - first) / step + 1, begin, windows) : begin, first};
            first += gap;
        }
    }
};

/// What a tap of all windows sees of a plane.
template <class T>
void take(const T* plane, const Dim& y, const Dim& x, const Dim::Tap& down, const Dim::Tap& across, T* out) {
    for (int64_t v = 0; v < y.windows; ++v, out += x.windows) {
        if (v < down.begin || v >= down.end) {
            std::fill_n(out, x.windows, T(0));
            continue;
        }
        const T* from = plane + (v * y.step + down.first) * x.size + across.first;
        std::fill_n(out, across.begin, T(0));
        if (x.step == 1)
            std::copy(from + across.begin, from + across.end, out + across.begin);
        else
            for (int64_t k = across.begin; k < across.end; ++k) out[k] = from[k * x.step];
        std::fill(out + across.end, out + x.windows, T(0));
    }
}

template <class T>
void add_row(const T* __restrict from, int64_t n, T* __restrict to) {
    for (int64_t k = 0; k < n; ++k) to[k] += from[k];
}

/// One row of a plane: what its windows have for it.
template <class T>
void add(const T* columns, const Dim& y, const Dim& x, int64_t row, T* out) {
    std::fill_n(out, x.size, T(0));
    for (const Dim::Tap& down : y.taps) {
        const int64_t v = (row - down.first) / y.step;
        const T* from = columns + v * x.windows;
        columns += int64_t(x.taps.size()) * y.windows * x.windows;
        if (v < down.begin || v >= down.end || v * y.step + down.first != row) continue;
        for (const Dim::Tap& across : x.taps) {
            T* to = out + across.first;
            if (x.step == 1) {
                add_row(from + across.begin, across.end - across.begin, to + across.begin);
            } else {
                for (int64_t k = across.begin; k < across.end; ++k) to[k * x.step] += from[k];
            }
            from += y.windows * x.windows;
        }
    }
}

constexpr double NS = 0.1, STEPPED_NS = 0.3;  // an element of the columns

[[gnu::cold]] KernelPtr im2col(const Request& r) {
    const Operand &out = r.operands[0], &images = r.operands[1];
    const Dim y(r, images, 0), x(r, images, 1);
    const int64_t size = y.windows * x.windows, taps = int64_t(y.taps.size() * x.taps.size());
    const auto make = [&]<class T>(T) {
        const auto body = [=](char* const* data, int64_t begin, int64_t end) {
            for (int64_t c = begin; c < end; ++c)
                take(reinterpret_cast<const T*>(data[1]) + c / taps * y.size * x.size, y, x,
                     y.taps[size_t(c % taps) / x.taps.size()], x.taps[size_t(c % taps) % x.taps.size()],
                     reinterpret_cast<T*>(data[0]) + c * size);
        };
        const double ns = double(size) * (x.step == 1 ? NS * double(sizeof(T)) / 4 : STEPPED_NS);
        return Staged::make(r, 1, {out.dtype, out.dtype}, parallel_kernel(images.shape[0] * images.shape[1] * taps, ns, body));
    };
    switch (size_of(out.dtype)) {
        case 2: return make(uint16_t());
        case 4: return make(uint32_t());
        case 8: return make(uint64_t());
        default: return nullptr;  // bytes are decomposed
    }
}

[[gnu::cold]] KernelPtr col2im(const Request& r) {
    const Operand& images = r.operands[0];
    if (!is_floating(images.dtype)) return nullptr;
    const DType dtype = computed_dtype(images.dtype);
    const Dim y(r, images, 0), x(r, images, 1);
    const int64_t columns = int64_t(y.taps.size() * x.taps.size()) * y.windows * x.windows;
    const int64_t planes = images.shape[0] * images.shape[1];
    const auto make = [&]<class T>(T) {
        const auto body = [=](char* const* data, int64_t begin, int64_t end) {
            for (int64_t row = begin; row < end; ++row)
                add(reinterpret_cast<const T*>(data[1]) + row / y.size * columns, y, x, row % y.size,
                    reinterpret_cast<T*>(data[0]) + row * x.size);
        };
        const double ns = x.step == 1 ? NS * double(sizeof(T)) / 4 : STEPPED_NS;
        return Staged::make(r, 1, {dtype, dtype},
                            parallel_kernel(planes * y.size, ns * double(columns) / double(std::max<int64_t>(y.size, 1)), body));
    };
    return dtype == DType::f64 ? make(double()) : make(float());
}

}  // namespace

void add_folding(Registry& registry) {
    registry["im2col"] = im2col;
    registry["col2im"] = col2im;
}

}  // namespace norch::nn
