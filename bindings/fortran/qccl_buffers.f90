! Declares the C functions of fortran_calls.c, which find the arguments of the C API's calls in the caller's arrays. The other
! modules of the binding use it. Any thread may call the functions; they do not block.
module qccl_buffers
  use, intrinsic :: iso_c_binding
  use qccl_constants, only: qcclDataType
  implicit none
  private

  ! qcclFortranCall_t of fortran_calls.h
  type, bind(c), public :: call_arguments
    type(c_ptr) :: send = c_null_ptr, recv = c_null_ptr
    integer(c_size_t) :: send_count = 0, recv_count = 0
    type(c_ptr) :: send_counts = c_null_ptr, send_displs = c_null_ptr, recv_counts = c_null_ptr, recv_displs = c_null_ptr
    integer(c_int32_t) :: datatype = 0
  end type

  public :: read_collective, read_v_form, read_messages
  interface
    function read_collective(arguments, collective, send, recv, count, datatype, op, root, stride, comm) result(code) &
        bind(c, name="qccl_fortran_collective")
      import
      type(call_arguments), intent(inout) :: arguments
      integer(c_int32_t), value :: collective
      type(*), dimension(..), intent(in), optional, target, asynchronous :: send
      type(*), dimension(..), optional, target, asynchronous :: recv
      integer(c_size_t), intent(in), optional :: count
      type(qcclDataType), intent(in), optional :: datatype
      integer(c_int32_t), value :: op
      integer(c_int), value :: root
      integer(c_size_t), value :: stride
      type(c_ptr), value :: comm
      integer(c_int32_t) :: code
    end function

    function read_v_form(arguments, collective, send, send_counts, send_displs, recv, recv_counts, recv_displs, count, datatype, &
        op, root, comm) result(code) bind(c, name="qccl_fortran_v_form")
      import
      type(call_arguments), intent(inout) :: arguments
      integer(c_int32_t), value :: collective
      type(*), dimension(..), intent(in), optional, target, asynchronous :: send
      type(*), dimension(..), optional, target, asynchronous :: recv
      integer(c_size_t), dimension(:), intent(in), optional, contiguous, target :: send_counts, send_displs
      integer(c_size_t), dimension(:), intent(in), optional, contiguous, target :: recv_counts, recv_displs
      integer(c_size_t), intent(in), optional :: count
      type(qcclDataType), intent(in), optional :: datatype
      integer(c_int32_t), value :: op
      integer(c_int), value :: root
      type(c_ptr), value :: comm
      integer(c_int32_t) :: code
    end function

    function read_messages(arguments, send, send_count, recv, recv_count, datatype, comm) result(code) &
        bind(c, name="qccl_fortran_messages")
      import
      type(call_arguments), intent(inout) :: arguments
      type(*), dimension(..), intent(in), optional, target, asynchronous :: send
      integer(c_size_t), intent(in), optional :: send_count
      type(*), dimension(..), optional, target, asynchronous :: recv
      integer(c_size_t), intent(in), optional :: recv_count
      type(qcclDataType), intent(in), optional :: datatype
      type(c_ptr), value :: comm
      integer(c_int32_t) :: code
    end function
  end interface

end module qccl_buffers
