/* Finds the arguments of the C API's calls in Fortran's arrays: see fortran_calls.h. */
#include "fortran_calls.h"

#include "fortran_errors.h"

/* What the buffers of a collective hold, and whether its root alone uses them. */
typedef struct {
    qcclCollective_t collective, v_form; /* v_form: -1 if there is none */
    int send_has_all, recv_has_all;      /* 1: blocks of all ranks, 0: one block */
    int send_is_root, recv_is_root;      /* 1: used on the root only */
    int reduces;
} qcclFortranShape_t;

static const qcclFortranShape_t shapes[] = {
    {qcclCollAllReduce, -1, 0, 0, 0, 0, 1},
    {qcclCollReduceScatter, qcclCollReduceScatterV, 1, 0, 0, 0, 1},
    {qcclCollAllGather, qcclCollAllGatherV, 0, 1, 0, 0, 0},
    {qcclCollBroadcast, -1, 0, 0, 1, 0, 0},
    {qcclCollReduce, -1, 0, 0, 0, 1, 1},
    {qcclCollGather, qcclCollGatherV, 0, 1, 0, 1, 0},
    {qcclCollScatter, qcclCollScatterV, 1, 0, 1, 0, 0},
    {qcclCollAllToAll, qcclCollAllToAllV, 1, 1, 0, 0, 0},
    {qcclCollScan, -1, 0, 0, 0, 0, 1},
    {qcclCollExscan, -1, 0, 0, 0, 0, 1}};

static const qcclFortranShape_t *shape_of(qcclCollective_t collective)
{
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        if (shapes[i].collective == collective || shapes[i].v_form == collective) return &shapes[i];
    return NULL;
}

/* The two arrays of a call, and the rank that makes it. */
typedef struct {
    const qcclFortranShape_t *shape;
    qcclComm_t comm;
    int nranks, rank;
    qcclFortranArray_t send, recv;
    qcclDataType_t type;
} qcclFortranSides_t;

/* The type of both arrays. */
static qcclResult_t settle_type(qcclFortranSides_t *sides)
{
    const qcclFortranArray_t *send = &sides->send, *recv = &sides->recv;
    sides->type = send->type >= 0 ? send->type : recv->type;
    if (sides->type < 0) return qccl_fortran_refuse(sides->comm, "this rank passes no array");
    if (recv->type >= 0 && recv->type != sides->type)
        return qccl_fortran_refuse(sides->comm, "send is %s, and recv is %s",
                                   qccl_fortran_name_of(send->type),
                                   qccl_fortran_name_of(recv->type));
    return qcclSuccess;
}

/* A logical that travels as an integer has no sum: its results have to be true or false. */
static qcclResult_t check_op(const qcclFortranSides_t *sides, qcclRedOp_t op)
{
    const int is_logical = op == qcclLogicalAnd || op == qcclLogicalOr || op == qcclLogicalXor;
    if (!sides->shape->reduces || is_logical || op >= 1024) return qcclSuccess;
    if (!sides->send.is_wide_logical && !sides->recv.is_wide_logical) return qcclSuccess;
    return qccl_fortran_refuse(sides->comm, "logical values are combined by qcclLogicalAnd, "
                                            "qcclLogicalOr and qcclLogicalXor: pass op");
}

/* Reads the arrays that this rank uses, and leaves the others out. */
static qcclResult_t read_sides(qcclFortranSides_t *sides, const CFI_cdesc_t *send,
                               const CFI_cdesc_t *recv, const qcclDataType_t *type, qcclRedOp_t op,
                               int root)
{
    const qcclFortranShape_t *shape = sides->shape;
    const int has_root = shape->send_is_root || shape->recv_is_root;
    qcclResult_t result = qcclSuccess;
    if (has_root || shape->send_has_all || shape->recv_has_all)
        result = qcclCommCount(sides->comm, &sides->nranks);
    if (result == qcclSuccess && sides->nranks > 0)
        result = qcclCommUserRank(sides->comm, &sides->rank);
    if (result != qcclSuccess) {
        qccl_fortran_note_answer(sides->comm, result);
        return result;
    }
    if (shape->send_is_root && sides->rank != root) send = NULL;
    if (shape->recv_is_root && sides->rank != root) recv = NULL;
    result = qccl_fortran_read_array(&sides->send, send, type, sides->comm);
    if (result == qcclSuccess)
        result = qccl_fortran_read_array(&sides->recv, recv, type, sides->comm);
    if (result != qcclSuccess) return result;
    if (sides->send.is_in_place && shape->recv_is_root && sides->rank != root)
        return qccl_fortran_refuse(
            sides->comm, "QCCL_IN_PLACE is for the root: rank %d passes send", sides->rank);
    result = settle_type(sides);
    return result == qcclSuccess ? check_op(sides, op) : result;
}

static qcclFortranSides_t make_sides(const qcclFortranShape_t *shape, qcclComm_t comm)
{
    qcclFortranSides_t sides = {.shape = shape, .comm = comm, .type = -1};
    sides.send.name = "send";
    sides.recv.name = "recv";
    return sides;
}

/* ---- Collectives that are no v-forms --------------------------------------------------------- */

/* The elements that a buffer of `count` elements or blocks of as many needs. Returns 0 if no number
 * is as great. */
static int needed_elements(const qcclFortranSides_t *sides, int has_all, size_t count,
                           size_t stride, size_t *needed)
{
    const size_t step = stride == 0 ? count : stride;
    *needed = count;
    return !has_all || (!__builtin_mul_overflow(step, (size_t)sides->nranks - 1, needed) &&
                        !__builtin_add_overflow(*needed, count, needed));
}

/* The count that follows from one array. Returns 0 if none does. */
static int infer_count(const qcclFortranSides_t *sides, const qcclFortranArray_t *array,
                       int has_all, size_t stride, size_t *count)
{
    if (!array->has_elements || (has_all && stride != 0)) return 0;
    *count = has_all ? array->elements / (size_t)sides->nranks : array->elements;
    return 1;
}

static qcclResult_t check_elements(const qcclFortranSides_t *sides, const qcclFortranArray_t *array,
                                   int has_all, size_t count, size_t stride, int is_exact)
{
    size_t needed = 0;
    if (!array->has_elements) return qcclSuccess;
    const int is_possible = needed_elements(sides, has_all, count, stride, &needed);
    if (is_possible && (is_exact ? array->elements == needed : array->elements >= needed))
        return qcclSuccess;
    if (!is_possible || !is_exact)
        return qccl_fortran_refuse(sides->comm, "%s has %zu elements, too few for %s of %zu",
                                   array->name, array->elements, has_all ? "blocks" : "a count",
                                   count);
    return qccl_fortran_refuse(
        sides->comm,
        "%s has %zu elements, and the call needs %zu (blocks: %d): pass count if it is to use a "
        "part of a longer array",
        array->name, array->elements, needed, has_all ? sides->nranks : 1);
}

/* The count that the caller gives, or that follows from the arrays, which have to be long enough.
 */
static qcclResult_t settle_count(const qcclFortranSides_t *sides, const size_t *given,
                                 size_t stride, size_t *count)
{
    const int is_in_place = sides->send.is_in_place;
    const int send_has_all = sides->shape->send_has_all;
    const int recv_has_all = sides->shape->recv_has_all || (is_in_place && send_has_all);
    const qcclFortranArray_t *send = &sides->send, *recv = &sides->recv;
    if (given != NULL && *given > PTRDIFF_MAX)
        return qccl_fortran_refuse(sides->comm, "count is less than 0");
    if (given != NULL) *count = *given;
    /* An array of one block says more than one whose blocks have to be divided. */
    const int is_known = given != NULL ||
                         (!send_has_all && infer_count(sides, send, 0, stride, count)) ||
                         (!recv_has_all && infer_count(sides, recv, 0, stride, count)) ||
                         infer_count(sides, send, send_has_all, stride, count) ||
                         infer_count(sides, recv, recv_has_all, stride, count);
    if (!is_known)
        return qccl_fortran_refuse(sides->comm, "pass count: it does not follow from %s",
                                   stride != 0 ? "vectors with a stride" : "assumed-size arrays");
    const int is_exact = given == NULL && stride == 0;
    const qcclResult_t result = check_elements(sides, send, send_has_all, *count, stride, is_exact);
    if (result != qcclSuccess) return result;
    return check_elements(sides, recv, recv_has_all, *count, stride, is_exact);
}

/* The two addresses of an in-place call on the array that the caller passes as recv. `offset`: of
 * this rank's own block, in elements. */
static void set_addresses(qcclFortranCall_t *call, const qcclFortranSides_t *sides, size_t offset)
{
    const size_t bytes = offset * qccl_fortran_bytes_of(sides->type);
    const int send_has_all = sides->shape->send_has_all;
    call->type = sides->type;
    call->send = sides->send.address;
    call->recv = sides->recv.address;
    if (!sides->send.is_in_place || sides->recv.address == NULL) return;
    const int has_own_block = send_has_all != sides->shape->recv_has_all;
    call->send = sides->recv.address + (has_own_block && !send_has_all ? bytes : 0);
    call->recv = sides->recv.address + (has_own_block && send_has_all ? bytes : 0);
}

qcclResult_t qccl_fortran_collective(qcclFortranCall_t *call, qcclCollective_t collective,
                                     const CFI_cdesc_t *send, const CFI_cdesc_t *recv,
                                     const size_t *count, const qcclDataType_t *type,
                                     qcclRedOp_t op, int root, size_t stride, qcclComm_t comm)
{
    qcclFortranSides_t sides = make_sides(shape_of(collective), comm);
    size_t each = 0;
    if (sides.shape == NULL || sides.shape->v_form == collective)
        return qccl_fortran_refuse(comm, "collective %d is unknown, or a v-form", (int)collective);
    qcclResult_t result = read_sides(&sides, send, recv, type, op, root);
    if (result == qcclSuccess) result = settle_count(&sides, count, stride, &each);
    if (result != qcclSuccess) return result;
    call->send_count = call->recv_count = each;
    set_addresses(call, &sides, (size_t)sides.rank * (stride == 0 ? each : stride));
    return qcclSuccess;
}

/* ---- V-forms --------------------------------------------------------------------------------- */

/* The address of a vector with an entry for each rank, or NULL. */
static qcclResult_t read_entries(const size_t **entries, const CFI_cdesc_t *vector,
                                 const char *name, const qcclFortranSides_t *sides)
{
    *entries = NULL;
    if (vector == NULL || vector->base_addr == NULL) return qcclSuccess;
    if (vector->dim[0].extent != sides->nranks)
        return qccl_fortran_refuse(sides->comm, "%s has %td entries, and there are %d ranks", name,
                                   vector->dim[0].extent, sides->nranks);
    *entries = (const size_t *)vector->base_addr;
    return qcclSuccess;
}

/* Checks that the parts lie in the array, and gives the offset of this rank's own part. */
static qcclResult_t check_parts(const qcclFortranSides_t *sides, const qcclFortranArray_t *array,
                                const size_t *counts, const size_t *displs, size_t *own)
{
    size_t next = 0;
    if (counts == NULL)
        return qccl_fortran_refuse(sides->comm, "rank %d has to pass the counts of %s", sides->rank,
                                   array->name);
    for (int rank = 0; rank < sides->nranks; rank++) {
        const size_t begin = displs != NULL ? displs[rank] : next;
        if (array->has_elements && counts[rank] > 0 &&
            (counts[rank] > array->elements || begin > array->elements - counts[rank]))
            return qccl_fortran_refuse(sides->comm,
                                       "the part of rank %d, %zu elements behind %zu, does not lie "
                                       "in %s, which has %zu",
                                       rank, counts[rank], begin, array->name, array->elements);
        if (rank == sides->rank) *own = begin;
        next = begin + counts[rank];
    }
    return qcclSuccess;
}

/* The count of the buffer that holds one part: what the v-form's counts say, or the caller. */
static qcclResult_t settle_part(const qcclFortranSides_t *sides, const qcclFortranArray_t *array,
                                const size_t *counts, const size_t *given, size_t *count)
{
    const int has_root = sides->shape->send_is_root || sides->shape->recv_is_root;
    if (!has_root || (given == NULL && sides->send.is_in_place)) given = &counts[sides->rank];
    if (given == NULL && !array->has_elements)
        return qccl_fortran_refuse(sides->comm, "pass count: it does not follow from %s",
                                   array->name);
    *count = given != NULL ? *given : array->elements;
    if (sides->send.is_in_place) return qcclSuccess;
    return check_elements(sides, array, 0, *count, 0, 0);
}

qcclResult_t qccl_fortran_v_form(qcclFortranCall_t *call, qcclCollective_t collective,
                                 const CFI_cdesc_t *send, const CFI_cdesc_t *send_counts,
                                 const CFI_cdesc_t *send_displs, const CFI_cdesc_t *recv,
                                 const CFI_cdesc_t *recv_counts, const CFI_cdesc_t *recv_displs,
                                 const size_t *count, const qcclDataType_t *type, qcclRedOp_t op,
                                 int root, qcclComm_t comm)
{
    qcclFortranSides_t sides = make_sides(shape_of(collective), comm);
    size_t own = 0;
    if (sides.shape == NULL || sides.shape->v_form != collective)
        return qccl_fortran_refuse(comm, "collective %d is no v-form", (int)collective);
    qcclResult_t result = read_sides(&sides, send, recv, type, op, root);
    if (result == qcclSuccess)
        result = read_entries(&call->send_counts, send_counts, "send_counts", &sides);
    if (result == qcclSuccess)
        result = read_entries(&call->send_displs, send_displs, "send_displs", &sides);
    if (result == qcclSuccess)
        result = read_entries(&call->recv_counts, recv_counts, "recv_counts", &sides);
    if (result == qcclSuccess)
        result = read_entries(&call->recv_displs, recv_displs, "recv_displs", &sides);
    if (result != qcclSuccess) return result;

    const qcclFortranShape_t *shape = sides.shape;
    const int is_in_place = sides.send.is_in_place;
    if (is_in_place && shape->send_has_all && shape->recv_has_all) {
        call->send_counts = call->recv_counts;
        call->send_displs = call->recv_displs;
    }
    const qcclFortranArray_t *send_array = is_in_place ? &sides.recv : &sides.send;
    const int has_send_parts = shape->send_has_all && (!shape->send_is_root || sides.rank == root);
    const int has_recv_parts = shape->recv_has_all && (!shape->recv_is_root || sides.rank == root);
    if (has_send_parts)
        result = check_parts(&sides, send_array, call->send_counts, call->send_displs, &own);
    if (result == qcclSuccess && has_recv_parts)
        result = check_parts(&sides, &sides.recv, call->recv_counts, call->recv_displs, &own);
    if (result == qcclSuccess && !shape->send_has_all)
        result = settle_part(&sides, &sides.send, call->recv_counts, count, &call->send_count);
    if (result == qcclSuccess && !shape->recv_has_all)
        result = settle_part(&sides, &sides.recv, call->send_counts, count, &call->recv_count);
    set_addresses(call, &sides, own);
    return result;
}

/* ---- Messages -------------------------------------------------------------------------------- */

qcclResult_t qccl_fortran_messages(qcclFortranCall_t *call, const CFI_cdesc_t *send,
                                   const size_t *send_count, const CFI_cdesc_t *recv,
                                   const size_t *recv_count, const qcclDataType_t *type,
                                   qcclComm_t comm)
{
    static const qcclFortranShape_t no_collective = {-1, -1, 0, 0, 0, 0, 0};
    qcclFortranSides_t sides = make_sides(&no_collective, comm);
    qcclResult_t result = read_sides(&sides, send, recv, type, qcclSum, 0);
    if (result != qcclSuccess) return result;
    if (sides.send.is_in_place) return qccl_fortran_refuse(comm, "a message has no QCCL_IN_PLACE");
    qcclFortranSides_t alone = sides;
    if (send != NULL) {
        alone.recv.has_elements = 0;
        result = settle_count(&alone, send_count, 0, &call->send_count);
    }
    if (result == qcclSuccess && recv != NULL) {
        alone = sides;
        alone.send.has_elements = 0;
        result = settle_count(&alone, recv_count, 0, &call->recv_count);
    }
    if (result == qcclSuccess) set_addresses(call, &sides, 0);
    return result;
}
