#include "distributed/nccl_functions.h"

#include <stdexcept>
#include <string>

#include "runtime/library.h"

namespace norch::distributed {
namespace {

Functions load_functions() {
    const Library from("nccl", "libnccl.so.2", "collectives of CUDA tensors", "norch-cuda[nccl]");
    Functions out;
    from.get(out.get_version, "ncclGetVersion");
    from.get(out.get_error_string, "ncclGetErrorString");
    from.get(out.get_last_error, "ncclGetLastError");
    from.get(out.get_unique_id, "ncclGetUniqueId");
    from.get(out.comm_init_rank, "ncclCommInitRank");
    from.get(out.comm_get_async_error, "ncclCommGetAsyncError");
    from.get(out.comm_finalize, "ncclCommFinalize");
    from.get(out.comm_destroy, "ncclCommDestroy");
    from.get(out.comm_abort, "ncclCommAbort");
    from.get(out.all_reduce, "ncclAllReduce");
    from.get(out.reduce, "ncclReduce");
    from.get(out.broadcast, "ncclBroadcast");
    from.get(out.all_gather, "ncclAllGather");
    from.get(out.reduce_scatter, "ncclReduceScatter");
    from.get(out.send, "ncclSend");
    from.get(out.receive, "ncclRecv");
    from.get(out.group_start, "ncclGroupStart");
    from.get(out.group_end, "ncclGroupEnd");
    return out;
}

}  // namespace

const Functions& nccl() {
    static const Functions loaded = load_functions();
    return loaded;
}

void check_nccl(Result result, const char* what, Comm comm) {
    if (result == SUCCESS) return;
    std::string message = std::string("NCCL failed ") + what + ": " + nccl().get_error_string(result);
    const char* more = nccl().get_last_error(comm);
    if (more && *more) message += std::string(": ") + more;
    throw std::runtime_error(message);
}

}  // namespace norch::distributed
