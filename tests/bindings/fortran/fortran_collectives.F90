! Every collective, for every type of Fortran's that QCCL has a type for. Any number of ranks from 2 on.
module typed_collectives
  use, intrinsic :: iso_c_binding, only: c_size_t, c_bool
  use, intrinsic :: iso_fortran_env, only: int8, int16, int32, int64, real32, real64
  use qccl
  use fortran_checks
  implicit none
contains

#define JOIN(a, b) a + b
#define SAME(a, b) abs(a - b) <= 0
#define OP qcclSum

#define NAME test_int8
#define TEXT "int8: "
#define TYPE integer(int8)
#define VALUE(i) int(i - 4, int8)
#include "fortran_typed.inc"

#define NAME test_int16
#define TEXT "int16: "
#define TYPE integer(int16)
#define VALUE(i) int(1000 * (i) - 4000, int16)
#include "fortran_typed.inc"

#define NAME test_int32
#define TEXT "int32: "
#define TYPE integer(int32)
#define VALUE(i) int(1000000 * (i) - 4000000, int32)
#include "fortran_typed.inc"

#define NAME test_int64
#define TEXT "int64: "
#define TYPE integer(int64)
#define VALUE(i) int(1000000000000_int64 * (i) - 4, int64)
#include "fortran_typed.inc"

#define NAME test_real32
#define TEXT "real32: "
#define TYPE real(real32)
#define VALUE(i) real(i, real32) - 4.25
#include "fortran_typed.inc"

#define NAME test_real64
#define TEXT "real64: "
#define TYPE real(real64)
#define VALUE(i) real(i, real64) - 4 - 2.0_real64**(-40)
#include "fortran_typed.inc"

#define NAME test_complex64
#define TEXT "complex64: "
#define TYPE complex(real32)
#define VALUE(i) cmplx(i, 0.5 - (i), real32)
#include "fortran_typed.inc"

#define NAME test_complex128
#define TEXT "complex128: "
#define TYPE complex(real64)
#define VALUE(i) cmplx(i, 2.0_real64**(-40) - (i), real64)
#include "fortran_typed.inc"

#undef JOIN
#undef SAME
#undef OP
#define JOIN(a, b) a .neqv. b
#define SAME(a, b) a .eqv. b
#define OP qcclLogicalXor

#define NAME test_bool
#define TEXT "logical(c_bool): "
#define TYPE logical(c_bool)
#define VALUE(i) logical(mod(i, 3) == 0, c_bool)
#include "fortran_typed.inc"

#define NAME test_logical
#define TEXT "logical: "
#define TYPE logical
#define VALUE(i) mod(i, 3) == 0
#include "fortran_typed.inc"

#define NAME test_logical2
#define TEXT "logical(2): "
#define TYPE logical(2)
#define VALUE(i) logical(mod(i, 3) == 0, 2)
#include "fortran_typed.inc"

#define NAME test_logical8
#define TEXT "logical(8): "
#define TYPE logical(8)
#define VALUE(i) logical(mod(i, 3) == 0, 8)
#include "fortran_typed.inc"

end module typed_collectives

program fortran_collectives
  use qccl
  use typed_collectives
  use fortran_checks
  implicit none
  type(qcclComm) :: comm
  call qcclCommInitEnv(comm)
  call test_int8(comm)
  call test_int16(comm)
  call test_int32(comm)
  call test_int64(comm)
  call test_real32(comm)
  call test_real64(comm)
  call test_complex64(comm)
  call test_complex128(comm)
  call test_bool(comm)
  call test_logical(comm)
  call test_logical2(comm)
  call test_logical8(comm)
  call qcclCommDestroy(comm)
  call end_of_checks(12 * 30)
end program
