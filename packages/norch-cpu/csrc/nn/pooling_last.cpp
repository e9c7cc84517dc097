// Pooling of images whose channels lie next to each other: a window's elements are rows of channels. The numbers are
// those of the other kernels, which go down the columns of a window first.
#include <span>
#include <vector>

#include "common/image_layout.h"
#include "nn/pooling.h"

namespace norch::nn {
namespace {

using reduction::Largest;

constexpr int64_t AT_ONCE = 64;  // channels

/// Some channels of one image.
struct Part {
    Part(const Pool& p, int64_t item) {
        const int64_t each = (p.channels + AT_ONCE - 1) / AT_ONCE;
        image = item / each;
        first = item % each * AT_ONCE;
        count = std::min(AT_ONCE, p.channels - first);
    }
    static int64_t items(const Pool& p) { return p.planes / std::max<int64_t>(p.channels, 1) * ((p.channels + AT_ONCE - 1) / AT_ONCE); }
    int64_t image, first, count;
};

/// `lines` has room for three rows of channels.
template <class F, class T>
void pool_pixel(const Pool& p, const Planes& from, const SeenAs<T>& seen, const char* image, int64_t y, int64_t x, T* lines, char* out) {
    T *const column = lines, *const value = column + p.channels, *const buffer = value + p.channels;
    for (int64_t j = 0; j < p.kw; ++j) {
        const int64_t at_x = x * p.step_x - p.left + j * p.gap_x;
        T* to = j ? column : value;
        bool is_first = true;
        for (int64_t i = 0; i < p.kh && at_x >= 0 && at_x < p.w; ++i) {
            const int64_t at_y = y * p.step_y - p.top + i * p.gap_y;
            if (at_y < 0 || at_y >= p.h) continue;
            const char* pixel = image + (at_y * from.row + at_x * from.column) * seen.size();
            if (is_first) {
                seen.load(to, pixel, 1, p.channels);
            } else {
                const T* channel = seen.row(pixel, 1, p.channels, buffer);
                NORCH_INDEPENDENT
                for (int64_t c = 0; c < p.channels; ++c) to[c] = F::apply(to[c], channel[c]);
            }
            is_first = false;
        }
        if (is_first) std::fill_n(to, p.channels, F::template empty<T>);
        if (!j) continue;
        NORCH_INDEPENDENT
        for (int64_t c = 0; c < p.channels; ++c) value[c] = F::apply(value[c], column[c]);
    }
    seen.store(out, value, p.channels);
}

template <class F, class T>
[[gnu::cold]] KernelPtr forward(const Request& r, const SeenAs<T>& seen) {
    const Pool p(r.operands[1], r.operands[0], r.attrs);
    const Planes from(r.operands[1]);
    const double ns = double(p.columns * p.channels) * 0.1 * (1 + p.window());
    return parallel_kernel(r.operands[0].shape[0] * p.rows, ns, [=](char* const* data, int64_t begin, int64_t end) {
        Scratch<T> lines(3 * p.channels);
        for (int64_t i = begin; i < end; ++i) {
            const char* image = data[1] + i / p.rows * from.n * seen.size();
            char* out = data[0] + i * p.columns * p.channels * seen.size();
            for (int64_t x = 0; x < p.columns; ++x, out += p.channels * seen.size())
                pool_pixel<F>(p, from, seen, image, i % p.rows, x, lines.data(), out);
        }
    });
}

/// Where the first largest elements of windows are, for some channels. Those of the windows' parts in a row of the image are
/// found once, and kept while a window sees them.
template <class T>
class Places {
public:
    Places(const Pool& p, const Planes& from, const SeenAs<T>& seen)
        : p_(p), from_(from), seen_(seen), span_((p.kh - 1) * p.gap_y + 1), slots_(p.step_y < span_ ? span_ : 0),
          line_(p.columns * AT_ONCE), best_(slots_ * line_), at_(slots_ * line_), known_(slots_), beside_(p.columns) {
        for (int64_t x = 0; x < p.columns; ++x) {
            beside_[x] = true;
            for (int64_t at = x * p.step_x - p.left, j = 0; j < p.kw; ++j, at += p.gap_x) beside_[x] &= at < 0 || at >= p.w;
        }
    }

    /// Before the first row of each part.
    void begin(const char* image, int64_t count) {
        image_ = image, count_ = count;
        std::fill_n(known_.data(), slots_, int64_t(-1));
    }

    /// Before the windows of row y.
    void look(int64_t y) {
        for (int64_t i = 0; i < p_.kh && slots_; ++i) {
            const int64_t at_y = y * p_.step_y - p_.top + i * p_.gap_y, slot = (at_y + p_.top) % slots_;
            if (at_y < 0 || at_y >= p_.h || known_[slot] == at_y) continue;
            known_[slot] = at_y;
            for (int64_t x = 0; x < p_.columns; ++x) {
                const int64_t to = slot * line_ + x * AT_ONCE;
                look_along(x, at_y, best_.data() + to, at_.data() + to, true);
            }
        }
    }

    /// For each channel the offset of window (y, x)'s; the nearest element if it has none.
    const int32_t* of(int64_t y, int64_t x) {
        const int64_t count = count_;
        const int64_t top = y * p_.step_y - p_.top;
        T best[AT_ONCE];
        bool is_first = true;
        for (int64_t i = 0; i < p_.kh; ++i) {
            const int64_t at_y = top + i * p_.gap_y;
            if (at_y < 0 || at_y >= p_.h) continue;
            if (!slots_) {
                is_first = look_along(x, at_y, best, result_, is_first);
                continue;
            }
            const int64_t from = (at_y + p_.top) % slots_ * line_ + x * AT_ONCE;
            meet(best, result_, best_.data() + from, count, is_first, [found = at_.data() + from](int64_t c) { return found[c]; });
            is_first = false;
        }
        if (is_first || beside_[x]) {
            const int64_t left = x * p_.step_x - p_.left;
            std::fill_n(result_, count, int32_t(std::clamp<int64_t>(top, 0, p_.h - 1) * p_.w + std::clamp<int64_t>(left, 0, p_.w - 1)));
        }
        return result_;
    }

private:
    template <class At>
    static NORCH_INLINE void meet(T* best, int32_t* at, const T* values, int64_t count, bool is_first, const At& place) {
        NORCH_INDEPENDENT
        for (int64_t c = 0; c < count; ++c) {
            const T value = values[c], old = best[c];
            const bool is_better = is_first | (value > old) | ((value != value) & (old == old));
            best[c] = is_better ? value : old;
            at[c] = is_better ? place(c) : at[c];
        }
    }

    /// Of a window's part in row `at_y`. Returns whether there has been no element so far.
    __attribute__((noinline)) bool look_along(int64_t x, int64_t at_y, T* best, int32_t* at, bool is_first) const {
        T buffer[AT_ONCE];
        const int64_t count = count_, kw = p_.kw;
        for (int64_t j = 0; j < kw; ++j) {
            const int64_t at_x = x * p_.step_x - p_.left + j * p_.gap_x;
            if (at_x < 0 || at_x >= p_.w) continue;
            const T* pixel = seen_.row(image_ + (at_y * from_.row + at_x * from_.column) * seen_.size(), 1, count, buffer);
            meet(best, at, pixel, count, is_first, [here = int32_t(at_y * p_.w + at_x)](int64_t) { return here; });
            is_first = false;
        }
        return is_first;
    }

    const Pool& p_;
    const Planes& from_;
    const SeenAs<T>& seen_;
    int64_t span_;          // rows from a window's first to its last
    int64_t slots_, line_;  // rows that are kept, elements of each
    Scratch<T> best_;
    Scratch<int32_t> at_;
    Scratch<int64_t> known_;  // the row that each of them holds
    Scratch<bool> beside_;    // columns whose windows have no element
    const char* image_ = nullptr;
    int64_t count_ = 0;  // channels
    int32_t result_[AT_ONCE] = {};
};

template <class T>
[[gnu::cold]] KernelPtr max_grad(const Request& r, const SeenAs<T>& seen) {
    const Pool p(r.operands[0], r.operands[1], r.attrs);
    const Planes grads(r.operands[1]), from(r.operands[2]);
    const double ns = double(std::min(AT_ONCE, p.channels)) * (double(p.rows * p.columns) * double(p.kh + p.kw) + double(p.h * p.w));
    return parallel_kernel(Part::items(p), ns, [=](char* const* data, int64_t begin, int64_t end) {
        // Where the gradient lies, or in float32 until all of a part is summed.
        const bool in_place = seen.elements.is_seen;
        const int64_t pixels = p.h * p.w, step = in_place ? p.channels : AT_ONCE;
        Scratch<T> buffer(in_place ? 0 : pixels * AT_ONCE);
        Places<T> places(p, from, seen);
        T row[AT_ONCE];
        for (int64_t item = begin; item < end; ++item) {
            const Part part(p, item);
            const char* image = data[2] + (part.image * from.n + part.first) * seen.size();
            const char* g = data[1] + (part.image * grads.n + part.first * grads.c) * seen.size();
            char* out = data[0] + (part.image * pixels * p.channels + part.first) * seen.size();
            T* const sums = in_place ? reinterpret_cast<T*>(out) : buffer.data();
            for (int64_t i = 0; i < pixels; ++i) std::fill_n(sums + i * step, part.count, T(0));
            places.begin(image, part.count);
            for (int64_t y = 0; y < p.rows; ++y) {
                places.look(y);
                for (int64_t x = 0; x < p.columns; ++x) {
                    const int32_t* at = places.of(y, x);
                    const char* pixel = g + (y * grads.row + x * grads.column) * seen.size();
                    const T* each = seen.row(pixel, grads.c, part.count, row);
                    for (int64_t c = 0; c < part.count; ++c) sums[at[c] * step + c] += each[c];
                }
            }
            for (int64_t i = 0; i < pixels && !in_place; ++i)
                seen.store(out + i * p.channels * seen.size(), sums + i * step, part.count);
        }
    });
}

/// A sum's first number, which makes of -0 what it makes of 0; then others.
template <class T>
void start(T* sum, const T* x, int64_t n) {
    NORCH_INDEPENDENT
    for (int64_t c = 0; c < n; ++c) sum[c] = T(0) + x[c];
}

template <class T>
void add(T* sum, const T* x, int64_t n) {
    NORCH_INDEPENDENT
    for (int64_t c = 0; c < n; ++c) sum[c] += x[c];
}

/// For each place of an axis which windows see it, by its elements' order, `stride` apart.
struct Windows {
    Windows(int64_t size, int64_t taps, int64_t gap, int64_t step, int64_t before, int64_t count, int64_t stride) : first{0} {
        for (int64_t i = 0; i < size; ++i) {
            for (int64_t j = 0; j < taps; ++j) {
                const int64_t at = i + before - j * gap;
                if (at >= 0 && at % step == 0 && at / step < count) places.push_back(at / step * stride);
            }
            first.push_back(int64_t(places.size()));
        }
    }
    std::span<const int64_t> of(int64_t i) const {
        return {places.data() + first[size_t(i)], size_t(first[size_t(i + 1)] - first[size_t(i)])};
    }
    std::vector<int64_t> first, places;
};

template <class T>
[[gnu::cold]] KernelPtr sum_grad(const Request& r, const SeenAs<T>& seen) {
    const Pool p(r.operands[0], r.operands[1], r.attrs);
    const Planes grads(r.operands[1]);
    const Windows down(p.h, p.kh, p.gap_y, p.step_y, p.top, p.rows, grads.row);
    const Windows across(p.w, p.kw, p.gap_x, p.step_x, p.left, p.columns, grads.column);
    const double ns = double(p.w * p.channels) * (0.2 + 0.1 * p.window());
    return parallel_kernel(r.operands[0].shape[0] * p.h, ns, [=](char* const* data, int64_t begin, int64_t end) {
        Scratch<T> lines(3 * p.channels);
        T *const column = lines.data(), *const value = column + p.channels, *const buffer = value + p.channels;
        for (int64_t item = begin; item < end; ++item) {
            const char* g = data[1] + item / p.h * grads.n * seen.size();
            char* out = data[0] + item * p.w * p.channels * seen.size();
            const auto rows = down.of(item % p.h);
            for (int64_t x = 0; x < p.w; ++x, out += p.channels * seen.size()) {
                T* to = value;
                for (const int64_t at_x : across.of(x)) {
                    for (size_t i = 0; i < rows.size(); ++i) {
                        const T* pixel = seen.row(g + (rows[i] + at_x) * seen.size(), 1, p.channels, buffer);
                        if (i) add(to, pixel, p.channels);
                        else start(to, pixel, p.channels);
                    }
                    if (to == column && !rows.empty()) add(value, column, p.channels);
                    to = column;
                }
                if (to == value || rows.empty()) std::fill_n(value, p.channels, T(0));
                seen.store(out, value, p.channels);
            }
        }
    });
}

bool are_last(const Request& r) {
    for (const Operand& o : r.operands)
        if (!is_channels_last(o) || o.dtype != r.operands[0].dtype) return false;
    return true;
}

}  // namespace

[[gnu::cold]] KernelPtr pooling_channels_last(const Request& r) {
    if (!are_last(r) || r.operands[0].numel() >= INT32_MAX) return nullptr;
    const DType dtype = r.operands[0].dtype;
    if (r.op == "max_pool2d") return visit_seen(dtype, [&](auto seen) { return forward<Largest>(r, seen); });
    return visit_seen_floating(dtype, [&](auto seen) {
        if (r.op == "sum_pool2d") return forward<reduction::Sum>(r, seen);
        return r.op == "max_pool2d_grad" ? max_grad(r, seen) : sum_grad(r, seen);
    });
}

}  // namespace norch::nn
