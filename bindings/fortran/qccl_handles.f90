! The handles of the C API as types, and the operators that compare handles, data types and reduction operations. All other
! modules of the binding use it. Any thread may call the functions; they do not block.
module qccl_handles
  use, intrinsic :: iso_c_binding
  use qccl_constants, only: qcclDataType, qcclRedOp
  implicit none
  private

  ! A handle without a value, such as qcclComm(), is C's NULL.
  type, bind(c), public :: qcclComm
    type(c_ptr) :: handle = c_null_ptr
  end type
  type, bind(c), public :: qcclCodec
    type(c_ptr) :: handle = c_null_ptr
  end type
  type, bind(c), public :: qcclLayerCodecs
    type(c_ptr) :: handle = c_null_ptr
  end type
  type, bind(c), public :: qcclState
    type(c_ptr) :: handle = c_null_ptr
  end type
  type, bind(c), public :: qcclStream
    type(c_ptr) :: handle = c_null_ptr ! of qcclStreamCreate, or of the vendor's runtime
  end type
  type, bind(c), public :: qcclRequest
    type(c_ptr) :: handle = c_null_ptr
  end type
  type, bind(c), public :: qcclColl
    type(c_ptr) :: handle = c_null_ptr
  end type
  type, bind(c), public :: qcclRegistration
    type(c_ptr) :: handle = c_null_ptr
  end type

  type(qcclStream), parameter, public :: QCCL_STREAM_SYNC = qcclStream(transfer(-1_c_intptr_t, c_null_ptr))

  ! Passed as `send`, it says that the values lie in `recv` already. Only its address counts: Fortran forbids a call to write
  ! on an array that the same call has as another argument, so that an array cannot be passed twice.
  integer(c_int), protected, bind(c, name="qccl_fortran_in_place"), public :: QCCL_IN_PLACE = 0

  public :: operator(==), operator(/=)
  interface operator(==)
    procedure same_comm, same_codec, same_state, same_stream, same_request, same_coll, same_registration, same_layers
    procedure same_type, same_op
  end interface
  interface operator(/=)
    procedure other_comm, other_codec, other_state, other_stream, other_request, other_coll, other_registration, other_layers
    procedure other_type, other_op
  end interface

contains

  pure logical function same_handle(a, b)
    type(c_ptr), intent(in) :: a, b
    same_handle = transfer(a, 0_c_intptr_t) == transfer(b, 0_c_intptr_t)
  end function

  elemental logical function same_comm(a, b)
    type(qcclComm), intent(in) :: a, b
    same_comm = same_handle(a%handle, b%handle)
  end function

  elemental logical function same_codec(a, b)
    type(qcclCodec), intent(in) :: a, b
    same_codec = same_handle(a%handle, b%handle)
  end function

  elemental logical function same_state(a, b)
    type(qcclState), intent(in) :: a, b
    same_state = same_handle(a%handle, b%handle)
  end function

  elemental logical function same_stream(a, b)
    type(qcclStream), intent(in) :: a, b
    same_stream = same_handle(a%handle, b%handle)
  end function

  elemental logical function same_request(a, b)
    type(qcclRequest), intent(in) :: a, b
    same_request = same_handle(a%handle, b%handle)
  end function

  elemental logical function same_coll(a, b)
    type(qcclColl), intent(in) :: a, b
    same_coll = same_handle(a%handle, b%handle)
  end function

  elemental logical function same_registration(a, b)
    type(qcclRegistration), intent(in) :: a, b
    same_registration = same_handle(a%handle, b%handle)
  end function

  elemental logical function same_layers(a, b)
    type(qcclLayerCodecs), intent(in) :: a, b
    same_layers = same_handle(a%handle, b%handle)
  end function

  elemental logical function same_type(a, b)
    type(qcclDataType), intent(in) :: a, b
    same_type = a%value == b%value
  end function

  elemental logical function same_op(a, b)
    type(qcclRedOp), intent(in) :: a, b
    same_op = a%value == b%value
  end function

  elemental logical function other_comm(a, b)
    type(qcclComm), intent(in) :: a, b
    other_comm = .not. a == b
  end function

  elemental logical function other_codec(a, b)
    type(qcclCodec), intent(in) :: a, b
    other_codec = .not. a == b
  end function

  elemental logical function other_state(a, b)
    type(qcclState), intent(in) :: a, b
    other_state = .not. a == b
  end function

  elemental logical function other_stream(a, b)
    type(qcclStream), intent(in) :: a, b
    other_stream = .not. a == b
  end function

  elemental logical function other_request(a, b)
    type(qcclRequest), intent(in) :: a, b
    other_request = .not. a == b
  end function

  elemental logical function other_coll(a, b)
    type(qcclColl), intent(in) :: a, b
    other_coll = .not. a == b
  end function

  elemental logical function other_registration(a, b)
    type(qcclRegistration), intent(in) :: a, b
    other_registration = .not. a == b
  end function

  elemental logical function other_layers(a, b)
    type(qcclLayerCodecs), intent(in) :: a, b
    other_layers = .not. a == b
  end function

  elemental logical function other_type(a, b)
    type(qcclDataType), intent(in) :: a, b
    other_type = .not. a == b
  end function

  elemental logical function other_op(a, b)
    type(qcclRedOp), intent(in) :: a, b
    other_op = .not. a == b
  end function

end module qccl_handles
