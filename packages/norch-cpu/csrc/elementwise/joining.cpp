// cat and stack in one pass: rows of bytes, of each part one after the other. What has no such rows is copied part by part.
#include "common/joining.h"

#include <algorithm>
#include <cstring>

#include "runtime/families.h"
#include "runtime/parallel.h"

namespace norch::elementwise {
namespace {

constexpr int64_t SHORTEST = 64;               // bytes of a row: shorter ones are copied faster as a matrix
constexpr int64_t PIECE = int64_t(128) << 10;  // bytes that are copied at a time
constexpr double BYTES_PER_NS = 12;

/// `rows` rows of `bytes` bytes of one part, from byte `from` on; the result's begin at byte `to`.
struct Piece {
    size_t part;
    int64_t from, step, to, rows, bytes;
};

[[gnu::cold]] KernelPtr join(const Request& request) {
    const auto joined = joined_rows(request);
    if (!joined) return nullptr;
    std::vector<Piece> pieces;
    for (size_t i = 0; i < joined->parts.size(); ++i) {
        const auto [step, start, bytes] = joined->parts[i];
        if (!bytes) continue;
        if (bytes < SHORTEST) return nullptr;
        const int64_t at_once = std::max<int64_t>(1, PIECE / bytes), most = std::min(bytes, PIECE);
        for (int64_t row = 0; row < joined->rows; row += at_once)
            for (int64_t at = 0; at < bytes; at += most)
                pieces.push_back({i + 1, row * step + at, step, row * joined->out_step + start + at,
                                  std::min(at_once, joined->rows - row), std::min(most, bytes - at)});
    }
    const double ns = double(joined->rows * joined->out_step) / BYTES_PER_NS / double(pieces.size()) + 5;
    return make_kernel(ns * double(pieces.size()),
                       [ns, out_step = joined->out_step, pieces = std::move(pieces)](char* const* data, const Scalar*) {
        parallel_for(int64_t(pieces.size()), ns, [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) {
                const Piece& p = pieces[size_t(i)];
                const char* from = data[p.part] + p.from;
                char* to = data[0] + p.to;
                for (int64_t row = 0; row < p.rows; ++row, from += p.step, to += out_step) std::memcpy(to, from, size_t(p.bytes));
            }
        });
    });
}

}  // namespace

void add_joining(Registry& registry) {
    registry["cat"] = registry["stack"] = join;
}

}  // namespace norch::elementwise
