// The part of NCCL's interface that is used: the same in nccl.h of 2.14 to 2.32.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

namespace norch::distributed {

using Comm = struct ncclComm*;
using Result = int;
constexpr Result SUCCESS = 0, IN_PROGRESS = 7;

struct UniqueId {
    char bytes[128];
};

struct Functions {
    Result (*get_version)(int* version);
    const char* (*get_error_string)(Result);
    const char* (*get_last_error)(Comm);
    Result (*get_unique_id)(UniqueId*);
    Result (*comm_init_rank)(Comm*, int size, UniqueId, int rank);
    Result (*comm_get_async_error)(Comm, Result*);
    Result (*comm_finalize)(Comm);
    Result (*comm_destroy)(Comm);
    Result (*comm_abort)(Comm);
    Result (*all_reduce)(const void* in, void* out, size_t count, int type, int op, Comm, cudaStream_t);
    Result (*reduce)(const void* in, void* out, size_t count, int type, int op, int root, Comm, cudaStream_t);
    Result (*broadcast)(const void* in, void* out, size_t count, int type, int root, Comm, cudaStream_t);
    Result (*all_gather)(const void* in, void* out, size_t count, int type, Comm, cudaStream_t);
    Result (*reduce_scatter)(const void* in, void* out, size_t count, int type, int op, Comm, cudaStream_t);
    Result (*send)(const void* in, size_t count, int type, int peer, Comm, cudaStream_t);
    Result (*receive)(void* out, size_t count, int type, int peer, Comm, cudaStream_t);
    Result (*group_start)();
    Result (*group_end)();
};

/// NCCL, which is opened when it is first asked for.
const Functions& nccl();

/// Throws where a call failed. `what` says what was being done.
void check_nccl(Result result, const char* what, Comm comm = nullptr);

}  // namespace norch::distributed
