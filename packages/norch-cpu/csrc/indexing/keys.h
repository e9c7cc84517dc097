// What of sorting and selecting is many elements' keys (indexing/order.h) at a time: compiled for each instruction set.
#pragma once

#include <cstdint>

namespace norch::indexing {

/// The keys, unsigned integers of an element's size, of n elements that lie side by side, exclusive-ored with `flip`. Returns
/// the least.
template <class T>
uint64_t keys_of(const T* x, int64_t n, uint64_t flip, void* keys);

}  // namespace norch::indexing
