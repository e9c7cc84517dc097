// The thread pool. Work that is small, nested, or met by a busy pool runs on the calling thread.
#pragma once

#include <algorithm>
#include <cstdint>

#include "common/kernel.h"

namespace norch {

int num_threads();
/// Throws std::invalid_argument unless count is from 1 to 1024.
void set_num_threads(int count);

/// Calls body(context, i) for each i in [0, count), on any thread and in any order; returns when all are done. The
/// first exception is thrown again here. `ns` is about what all of it costs one core: threads that sleep are not woken for
/// a little.
void run_parallel(int64_t count, void (*body)(const void* context, int64_t i), const void* context, double ns = 1e9);

/// Work below this many nanoseconds is not worth a second thread.
constexpr double PARALLEL_NS = 15000;

/// Into how many pieces work of `ns` is cut that reads memory once: one for each thread where they are short, as each
/// begins streams of memory.
inline int64_t streamed_pieces(double ns) {
    const int64_t each = std::clamp<int64_t>(int64_t(ns / (3 * PARALLEL_NS * num_threads())), 1, 4);
    return std::min<int64_t>(each * num_threads(), int64_t(ns / (PARALLEL_NS / 3)));
}

/// parallel_for without its template: body(context, begin, end).
void run_ranges(int64_t n, double ns_per_item, int64_t align, void (*body)(const void* context, int64_t begin, int64_t end),
                const void* context);

/// Calls body(begin, end) on ranges that cover [0, n). `ns_per_item` is about what an item costs one core; ranges are
/// multiples of `align` items. How the ranges are cut depends only on these numbers and num_threads().
template <class Body>
void parallel_for(int64_t n, double ns_per_item, const Body& body, int64_t align = 1) {
    run_ranges(
        n, ns_per_item, align,
        [](const void* given, int64_t begin, int64_t end) { (*static_cast<const Body*>(given))(begin, end); }, &body);
}

/// A kernel of n items that parallel_for hands out: body(data, begin, end).
template <class Body>
[[gnu::cold]] KernelPtr parallel_kernel(int64_t n, double ns_per_item, Body body) {
    return make_kernel(double(n) * ns_per_item, [=](char* const* data, const Scalar*) {
        parallel_for(n, ns_per_item, [&](int64_t begin, int64_t end) { body(data, begin, end); });
    });
}

}  // namespace norch
