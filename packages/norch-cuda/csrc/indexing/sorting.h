// Keys with places, sorted.
#pragma once

#include <cstdint>

namespace norch::indexing {

struct KeyedPlaces {
    uint32_t *keys, *places;
};

/// Sorts `count` keys below 2**bits, of which equal ones keep their order. Behind the first `stored` elements each array
/// has as many more; returns which halves hold the result.
KeyedPlaces sort_places(KeyedPlaces given, int64_t stored, int64_t count, int bits);

}  // namespace norch::indexing
