/* Reads the arrays that Fortran programs pass: see fortran_arrays.h. */
#include "fortran_arrays.h"

#include "fortran_errors.h"

/* QCCL_IN_PLACE, of which the address alone counts. The Fortran module defines it. */
extern int qccl_fortran_in_place;

#define ROW(type, bytes)                                                                           \
    {                                                                                              \
        qccl##type, bytes, "qccl" #type                                                            \
    }
static const struct {
    qcclDataType_t type;
    size_t bytes;
    const char *name;
} types[] = {ROW(Int8, 1),       ROW(Uint8, 1),      ROW(Int16, 2),      ROW(Uint16, 2),
             ROW(Int32, 4),      ROW(Uint32, 4),     ROW(Int64, 8),      ROW(Uint64, 8),
             ROW(Float16, 2),    ROW(Bfloat16, 2),   ROW(Float32, 4),    ROW(Float64, 8),
             ROW(Float8e4m3, 1), ROW(Float8e5m2, 1), ROW(Complex64, 8),  ROW(Complex128, 16),
             ROW(Bool, 1),       ROW(FloatInt, 8),   ROW(DoubleInt, 16), ROW(LongInt, 16),
             ROW(IntInt, 8),     ROW(ShortInt, 8)};
enum { TYPES = sizeof types / sizeof *types };

size_t qccl_fortran_bytes_of(qcclDataType_t type)
{
    for (int i = 0; i < TYPES; i++)
        if (types[i].type == type) return types[i].bytes;
    return 0;
}

const char *qccl_fortran_name_of(qcclDataType_t type)
{
    for (int i = 0; i < TYPES; i++)
        if (types[i].type == type) return types[i].name;
    return "an unknown type";
}

/* The type of an array's elements, or -1. A logical of more than one byte is an integer of its
 * size, in which Fortran and QCCL write true as 1 and false as 0. */
static qcclDataType_t type_of(const CFI_cdesc_t *descriptor)
{
    switch (descriptor->type) {
    case CFI_type_int8_t: return qcclInt8;
    case CFI_type_int16_t: return qcclInt16;
    case CFI_type_int32_t: return qcclInt32;
    case CFI_type_int64_t: return qcclInt64;
    case CFI_type_float: return qcclFloat32;
    case CFI_type_double: return qcclFloat64;
    case CFI_type_float_Complex: return qcclComplex64;
    case CFI_type_double_Complex: return qcclComplex128;
    case CFI_type_Bool: return qcclBool;
    case CFI_type_Logical + (2 << CFI_type_kind_shift): return qcclInt16;
    case CFI_type_Logical + (4 << CFI_type_kind_shift): return qcclInt32;
    case CFI_type_Logical + (8 << CFI_type_kind_shift): return qcclInt64;
    default: return -1;
    }
}

/* The elements of the array as Fortran counts them. Returns 0 for an assumed-size array, whose last
 * extent is -1. gfortran passes other negative extents for arrays without elements. */
static int count_elements(const CFI_cdesc_t *descriptor, size_t *elements)
{
    const int last = descriptor->rank - 1;
    *elements = 1;
    if (last >= 0 && descriptor->dim[last].extent == -1) return 0;
    for (int i = 0; i <= last; i++) {
        const CFI_index_t extent = descriptor->dim[i].extent;
        *elements *= extent < 0 ? 0 : (size_t)extent;
    }
    return 1;
}

/* Counts the elements in those of the type that the caller says the array has. */
static qcclResult_t apply_type(qcclFortranArray_t *array, const CFI_cdesc_t *descriptor,
                               qcclDataType_t type, qcclComm_t comm)
{
    const size_t each = qccl_fortran_bytes_of(type), bytes = array->elements * descriptor->elem_len;
    array->type = type;
    if (each == 0) return qccl_fortran_refuse(comm, "datatype %d is no type of QCCL", (int)type);
    if (!array->has_elements) return qcclSuccess;
    if (bytes % each != 0)
        return qccl_fortran_refuse(comm, "%s has %zu bytes, which is no multiple of the %zu of %s",
                                   array->name, bytes, each, qccl_fortran_name_of(type));
    array->elements = bytes / each;
    return qcclSuccess;
}

qcclResult_t qccl_fortran_read_array(qcclFortranArray_t *array, const CFI_cdesc_t *descriptor,
                                     const qcclDataType_t *type, qcclComm_t comm)
{
    array->address = NULL;
    array->elements = 0;
    array->has_elements = array->is_in_place = array->is_wide_logical = 0;
    array->type = -1;
    if (descriptor == NULL || descriptor->base_addr == NULL) return qcclSuccess;
    array->is_in_place = descriptor->base_addr == (void *)&qccl_fortran_in_place;
    if (array->is_in_place) return qcclSuccess;

    array->address = (char *)descriptor->base_addr;
    array->has_elements = count_elements(descriptor, &array->elements);
    if (array->has_elements && array->elements > 1 && !CFI_is_contiguous(descriptor))
        return qccl_fortran_refuse(
            comm, "%s is not contiguous: pass a contiguous array, and copy a section into one",
            array->name);
    if (type != NULL) return apply_type(array, descriptor, *type, comm);
    array->type = type_of(descriptor);
    array->is_wide_logical =
        descriptor->type != CFI_type_Bool && (descriptor->type & CFI_type_mask) == CFI_type_Logical;
    if (array->type < 0)
        return qccl_fortran_refuse(comm,
                                   "QCCL has no type of its own for the elements of %s, which "
                                   "have %zu bytes each: pass datatype",
                                   array->name, descriptor->elem_len);
    return qcclSuccess;
}
