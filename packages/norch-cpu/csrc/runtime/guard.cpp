#include "runtime/guard.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#if !defined(_WIN32)
#include <sys/mman.h>
#include <unistd.h>
#endif

namespace norch {

#if defined(_WIN32)

bool guarding() { return false; }
void* allocate_guarded(size_t) { return nullptr; }
void release_guarded(void*, size_t) noexcept {}

#else

namespace {

constexpr size_t ALIGNMENT = 64;
constexpr unsigned char POISON = 0xff, CANARY = 0xa5;

/// Where a block of so many bytes lies: a page, its pages, a page.
struct Extent {
    size_t page = size_t(sysconf(_SC_PAGE_SIZE));
    size_t taken, pages;  // with what alignment adds behind the block; and the bytes that may be touched

    explicit Extent(size_t nbytes)
        : taken((nbytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT), pages((taken + page - 1) / page * page) {}

    size_t before() const { return pages - taken; }
};

bool untouched(const unsigned char* from, const unsigned char* to) {
    for (; from != to; ++from)
        if (*from != CANARY) return false;
    return true;
}

}  // namespace

bool guarding() {
    static const bool on = [] {
        const char* value = std::getenv("NORCH_CPU_GUARD");
        return value && *value && std::strcmp(value, "0") != 0;
    }();
    return on;
}

void* allocate_guarded(size_t nbytes) {
    Extent extent(nbytes);
    void* start = mmap(nullptr, extent.pages + 2 * extent.page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED) return nullptr;
    auto* first = static_cast<unsigned char*>(start) + extent.page;
    if (extent.pages && mprotect(first, extent.pages, PROT_READ | PROT_WRITE) != 0) return nullptr;
    auto* block = first + extent.before();
    std::memset(first, CANARY, extent.before());
    std::memset(block, POISON, nbytes);
    std::memset(block + nbytes, CANARY, extent.taken - nbytes);
    return block;
}

void release_guarded(void* block, size_t nbytes) noexcept {
    Extent extent(nbytes);
    auto* data = static_cast<unsigned char*>(block);
    auto* first = data - extent.before();
    if (!untouched(first, data) || !untouched(data + nbytes, data + extent.taken)) {
        std::fprintf(stderr, "norch-cpu: memory next to a block of %zu bytes was written to\n", nbytes);
        std::abort();
    }
    munmap(first - extent.page, extent.pages + 2 * extent.page);
}

#endif

}  // namespace norch
