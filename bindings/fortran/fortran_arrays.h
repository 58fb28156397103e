/* Reads the arrays that Fortran programs pass as `type(*), dimension(..)`: where they lie, how many
 * elements they have, and of which type. fortran_calls.c uses it. Any thread may call the
 * functions; they do not block. */
#ifndef QCCL_FORTRAN_ARRAYS_H
#define QCCL_FORTRAN_ARRAYS_H

#include <ISO_Fortran_binding.h>
#include <qccl/qccl.h>

typedef struct {
    const char *name;    /* of the argument, for sentences */
    char *address;       /* NULL if the caller passes none, or QCCL_IN_PLACE */
    size_t elements;     /* of `type` */
    int has_elements;    /* 0: an assumed-size array, whose length is not known; or none */
    int is_in_place;     /* the caller passes QCCL_IN_PLACE */
    int is_wide_logical; /* a logical of more than one byte, which travels as an integer */
    qcclDataType_t type; /* -1: there is no array */
} qcclFortranArray_t;

/* Reads one argument.
 *
 * array: its `name` is set. Receives the rest.
 * descriptor: NULL where the caller leaves the argument out, or passes an unallocated array.
 * type: NULL: the type of the array's elements; else the type that the caller says it has.
 * comm: whose call it is, for the sentence of a refusal.
 * Returns qcclInvalidArgument for an array that is not contiguous, whose elements QCCL has no type
 * for, or whose bytes are no multiple of `type`. */
qcclResult_t qccl_fortran_read_array(qcclFortranArray_t *array, const CFI_cdesc_t *descriptor,
                                     const qcclDataType_t *type, qcclComm_t comm);

/* The bytes of an element, or 0 for an unknown type, and the name that qccl.h has for the type. */
size_t qccl_fortran_bytes_of(qcclDataType_t type);
const char *qccl_fortran_name_of(qcclDataType_t type);

#endif
