! Operations of the program, codecs, states, memory, explanations and statistics. The comments of qccl.h say which procedures block,
! and which threads may call them. ierror: receives the result. Without it an error prints its sentence and stops the program.
module qccl_objects
  use, intrinsic :: iso_c_binding
  use qccl_constants
  use qccl_handles
  use qccl_config, only: c_text, fortran_text, ask_text, fill_state_config, qcclStateConfig
  use qccl_errors, only: finish
  use qccl_buffers, only: call_arguments, read_messages
  use qccl_c, qcclCommStats => c_qcclCommStats
  implicit none
  private
  public :: qcclRedOpCreate, qcclRedOpCreatePreMulSum, qcclRedOpDestroy
  public :: qcclCodecCreate, qcclCodecDestroy, qcclCodecGetSpec, qcclCodecMaxEncodedBytes, qcclCodecEncode, qcclCodecDecode
  public :: qcclStateCreate, qcclStateBytes, qcclStateSave, qcclStateLoad, qcclStateReset, qcclStateDestroy
  public :: qcclMemAlloc, qcclMemFree, qcclCommRegister, qcclCommDeregister
  public :: qcclExplain, qcclCommStats, qcclCommGetStats

  abstract interface
    ! Replaces each accumulator(i) by accumulator(i) op values(i), and returns 0; any other number fails the communicator.
    ! c_f_pointer makes arrays of `count` elements of the two addresses. datatype: the number of the type, qcclInt32%value.
    ! A procedure of a module, and no internal one: an internal one ends with the procedure around it.
    function qcclRedOpFunction(accumulator, values, count, datatype, context) result(error) bind(c)
      import :: c_ptr, c_size_t, c_int32_t, c_int
      type(c_ptr), value :: accumulator, values
      integer(c_size_t), value :: count
      integer(c_int32_t), value :: datatype
      type(c_ptr), value :: context
      integer(c_int) :: error
    end function
  end interface
  public :: qcclRedOpFunction

  ! With a function of the interface above, which the compiler checks, or with its c_funloc.
  interface qcclRedOpCreate
    procedure create_op, create_op_of_address
  end interface

contains

  subroutine create_op(op, function, commutes, context, ierror)
    type(qcclRedOp), intent(out) :: op
    procedure(qcclRedOpFunction) :: function
    logical, intent(in) :: commutes
    type(c_ptr), intent(in), optional :: context
    integer(c_int), intent(out), optional :: ierror
    call create_op_of_address(op, c_funloc(function), commutes, context, ierror)
  end subroutine

  subroutine create_op_of_address(op, function, commutes, context, ierror)
    type(qcclRedOp), intent(out) :: op
    type(c_funptr), value :: function
    logical, intent(in) :: commutes
    type(c_ptr), intent(in), optional :: context
    integer(c_int), intent(out), optional :: ierror
    type(c_ptr) :: passed
    passed = c_null_ptr
    if (present(context)) passed = context
    call finish("qcclRedOpCreate", c_qcclRedOpCreate(op%value, function, merge(1_c_int, 0_c_int, commutes), passed), ierror=ierror)
  end subroutine

  ! Makes an operation that sums the products of each rank's values and its scalar, whose type is that of the values.
  ! residence: qcclScalarHostImmediate if it is left out.
  subroutine qcclRedOpCreatePreMulSum(op, scalar, comm, residence, datatype, ierror)
    type(qcclRedOp), intent(out) :: op
    type(*), dimension(..), intent(in), target :: scalar
    type(qcclComm), intent(in) :: comm
    integer(c_int), intent(in), optional :: residence
    type(qcclDataType), intent(in), optional :: datatype
    integer(c_int), intent(out), optional :: ierror
    type(call_arguments) :: a
    integer(c_int) :: where
    integer(c_int32_t) :: result
    where = qcclScalarHostImmediate
    if (present(residence)) where = residence
    result = read_messages(a, send=scalar, datatype=datatype, comm=comm%handle)
    if (result /= qcclSuccess) then
      call finish("qcclRedOpCreatePreMulSum", result, comm, .true., ierror)
    else
      result = c_qcclRedOpCreatePreMulSum(op%value, a%send, a%datatype, where, comm%handle)
      call finish("qcclRedOpCreatePreMulSum", result, comm, ierror=ierror)
    end if
  end subroutine

  subroutine qcclRedOpDestroy(op, ierror)
    type(qcclRedOp), intent(in) :: op
    integer(c_int), intent(out), optional :: ierror
    call finish("qcclRedOpDestroy", c_qcclRedOpDestroy(op%value), ierror=ierror)
  end subroutine

  subroutine qcclCodecCreate(codec, spec, ierror)
    type(qcclCodec), intent(out) :: codec
    character(*), intent(in) :: spec
    integer(c_int), intent(out), optional :: ierror
    character(kind=c_char), allocatable, target :: text(:)
    allocate (text, source=c_text(spec))
    call finish("qcclCodecCreate", c_qcclCodecCreate(codec%handle, c_loc(text)), ierror=ierror)
  end subroutine

  subroutine qcclCodecDestroy(codec, ierror)
    type(qcclCodec), intent(in) :: codec
    integer(c_int), intent(out), optional :: ierror
    call finish("qcclCodecDestroy", c_qcclCodecDestroy(codec%handle), ierror=ierror)
  end subroutine

  ! spec: the shortest text that makes the same codec.
  subroutine qcclCodecGetSpec(codec, spec, ierror)
    type(qcclCodec), intent(in) :: codec
    character(:), allocatable, intent(out) :: spec
    integer(c_int), intent(out), optional :: ierror
    integer(c_int32_t) :: result
    call ask_text(c_qcclCodecGetSpec, codec%handle, spec, result)
    call finish("qcclCodecGetSpec", result, ierror=ierror)
  end subroutine

  subroutine qcclCodecMaxEncodedBytes(codec, count, datatype, bytes, ierror)
    type(qcclCodec), intent(in) :: codec
    integer(c_size_t), intent(in) :: count
    type(qcclDataType), intent(in) :: datatype
    integer(c_size_t), intent(out) :: bytes
    integer(c_int), intent(out), optional :: ierror
    bytes = 0
    call finish("qcclCodecMaxEncodedBytes", c_qcclCodecMaxEncodedBytes(codec%handle, count, datatype%value, bytes), ierror=ierror)
  end subroutine

  ! Encodes the values of src, or the first `count` of them, into dst. written: the bytes of the container in dst.
  subroutine qcclCodecEncode(codec, src, dst, written, count, datatype, stream, ierror)
    type(qcclCodec), intent(in) :: codec
    type(*), dimension(..), intent(in), target, asynchronous :: src
    type(*), dimension(..), intent(inout), target, asynchronous :: dst
    integer(c_size_t), intent(out) :: written
    integer(c_size_t), intent(in), optional :: count
    type(qcclDataType), intent(in), optional :: datatype
    type(qcclStream), intent(in), optional :: stream
    integer(c_int), intent(out), optional :: ierror
    type(call_arguments) :: values, container
    type(qcclStream) :: where
    integer(c_int32_t) :: result
    written = 0
    if (present(stream)) where = stream
    result = read_messages(values, send=src, send_count=count, datatype=datatype, comm=c_null_ptr)
    if (result == qcclSuccess) result = read_messages(container, recv=dst, datatype=qcclUint8, comm=c_null_ptr)
    if (result /= qcclSuccess) then
      call finish("qcclCodecEncode", result, refused=.true., ierror=ierror)
    else
      result = c_qcclCodecEncode(codec%handle, values%send, values%send_count, values%datatype, container%recv, &
        container%recv_count, written, where%handle)
      call finish("qcclCodecEncode", result, ierror=ierror)
    end if
  end subroutine

  ! Decodes the container in src, which has the bytes of src or the first `bytes` of them, to the values of dst.
  subroutine qcclCodecDecode(codec, src, dst, bytes, count, datatype, stream, ierror)
    type(qcclCodec), intent(in) :: codec
    type(*), dimension(..), intent(in), target, asynchronous :: src
    type(*), dimension(..), intent(inout), target, asynchronous :: dst
    integer(c_size_t), intent(in), optional :: bytes, count
    type(qcclDataType), intent(in), optional :: datatype
    type(qcclStream), intent(in), optional :: stream
    integer(c_int), intent(out), optional :: ierror
    type(call_arguments) :: values, container
    type(qcclStream) :: where
    integer(c_int32_t) :: result
    if (present(stream)) where = stream
    result = read_messages(container, send=src, send_count=bytes, datatype=qcclUint8, comm=c_null_ptr)
    if (result == qcclSuccess) result = read_messages(values, recv=dst, recv_count=count, datatype=datatype, comm=c_null_ptr)
    if (result /= qcclSuccess) then
      call finish("qcclCodecDecode", result, refused=.true., ierror=ierror)
    else
      result = c_qcclCodecDecode(codec%handle, container%send, container%send_count, values%recv, values%recv_count, &
        values%datatype, where%handle)
      call finish("qcclCodecDecode", result, ierror=ierror)
    end if
  end subroutine

  subroutine qcclStateCreate(state, comm, count, datatype, config, ierror)
    type(qcclState), intent(out) :: state
    type(qcclComm), intent(in) :: comm
    integer(c_size_t), intent(in) :: count
    type(qcclDataType), intent(in) :: datatype
    type(qcclStateConfig), intent(in), optional :: config
    integer(c_int), intent(out), optional :: ierror
    type(c_qcclStateConfig) :: held
    integer(c_int32_t) :: result
    result = c_qcclStateCreate(state%handle, comm%handle, count, datatype%value, fill_state_config(held, config))
    call finish("qcclStateCreate", result, comm, ierror=ierror)
  end subroutine

  ! bytes: what qcclStateSave writes.
  subroutine qcclStateBytes(state, bytes, ierror)
    type(qcclState), intent(in) :: state
    integer(c_size_t), intent(out) :: bytes
    integer(c_int), intent(out), optional :: ierror
    bytes = 0
    call finish("qcclStateBytes", c_qcclStateBytes(state%handle, bytes), ierror=ierror)
  end subroutine

  subroutine qcclStateSave(state, buffer, ierror)
    type(qcclState), intent(in) :: state
    type(*), dimension(..), intent(inout), target :: buffer
    integer(c_int), intent(out), optional :: ierror
    type(call_arguments) :: saved
    integer(c_int32_t) :: result
    result = read_messages(saved, recv=buffer, datatype=qcclUint8, comm=c_null_ptr)
    if (result /= qcclSuccess) then
      call finish("qcclStateSave", result, refused=.true., ierror=ierror)
    else
      call finish("qcclStateSave", c_qcclStateSave(state%handle, saved%recv, saved%recv_count), ierror=ierror)
    end if
  end subroutine

  subroutine qcclStateLoad(state, buffer, ierror)
    type(qcclState), intent(in) :: state
    type(*), dimension(..), intent(in), target :: buffer
    integer(c_int), intent(out), optional :: ierror
    type(call_arguments) :: saved
    integer(c_int32_t) :: result
    result = read_messages(saved, send=buffer, datatype=qcclUint8, comm=c_null_ptr)
    if (result /= qcclSuccess) then
      call finish("qcclStateLoad", result, refused=.true., ierror=ierror)
    else
      call finish("qcclStateLoad", c_qcclStateLoad(state%handle, saved%send, saved%send_count), ierror=ierror)
    end if
  end subroutine

  subroutine qcclStateReset(state, ierror)
    type(qcclState), intent(in) :: state
    integer(c_int), intent(out), optional :: ierror
    call finish("qcclStateReset", c_qcclStateReset(state%handle), ierror=ierror)
  end subroutine

  subroutine qcclStateDestroy(state, ierror)
    type(qcclState), intent(in) :: state
    integer(c_int), intent(out), optional :: ierror
    call finish("qcclStateDestroy", c_qcclStateDestroy(state%handle), ierror=ierror)
  end subroutine

  ! c_f_pointer makes an array of the address.
  subroutine qcclMemAlloc(pointer, bytes, ierror)
    type(c_ptr), intent(out) :: pointer
    integer(c_size_t), intent(in) :: bytes
    integer(c_int), intent(out), optional :: ierror
    pointer = c_null_ptr
    call finish("qcclMemAlloc", c_qcclMemAlloc(pointer, bytes), ierror=ierror)
  end subroutine

  subroutine qcclMemFree(pointer, ierror)
    type(c_ptr), intent(in) :: pointer
    integer(c_int), intent(out), optional :: ierror
    call finish("qcclMemFree", c_qcclMemFree(pointer), ierror=ierror)
  end subroutine

  ! Registers the memory of qcclMemAlloc in which the array lies.
  subroutine qcclCommRegister(comm, buffer, registration, ierror)
    type(qcclComm), intent(in) :: comm
    type(*), dimension(..), intent(in), target, asynchronous :: buffer
    type(qcclRegistration), intent(out) :: registration
    integer(c_int), intent(out), optional :: ierror
    type(call_arguments) :: a
    integer(c_int32_t) :: result
    result = read_messages(a, send=buffer, datatype=qcclUint8, comm=comm%handle)
    if (result /= qcclSuccess) then
      call finish("qcclCommRegister", result, comm, .true., ierror)
    else
      result = c_qcclCommRegister(comm%handle, a%send, a%send_count, registration%handle)
      call finish("qcclCommRegister", result, comm, ierror=ierror)
    end if
  end subroutine

  subroutine qcclCommDeregister(comm, registration, ierror)
    type(qcclComm), intent(in) :: comm
    type(qcclRegistration), intent(in) :: registration
    integer(c_int), intent(out), optional :: ierror
    call finish("qcclCommDeregister", c_qcclCommDeregister(comm%handle, registration%handle), comm, ierror=ierror)
  end subroutine

  ! text: what the planner would do with the call that `what` describes.
  subroutine qcclExplain(comm, what, text, ierror)
    type(qcclComm), intent(in) :: comm
    character(*), intent(in) :: what
    character(:), allocatable, intent(out) :: text
    integer(c_int), intent(out), optional :: ierror
    character(kind=c_char), allocatable, target :: question(:), answer(:)
    integer(c_size_t), target :: bytes
    integer(c_int32_t) :: result
    allocate (question, source=c_text(what))
    bytes = 0
    result = c_qcclExplain(comm%handle, c_loc(question), c_null_ptr, c_loc(bytes))
    if (result == qcclSuccess) then
      allocate (answer(bytes))
      result = c_qcclExplain(comm%handle, c_loc(question), c_loc(answer), c_loc(bytes))
    end if
    if (result == qcclSuccess) text = fortran_text(answer)
    call finish("qcclExplain", result, ierror=ierror)
  end subroutine

  subroutine qcclCommGetStats(comm, stats, ierror)
    type(qcclComm), intent(in) :: comm
    type(qcclCommStats), intent(out) :: stats
    integer(c_int), intent(out), optional :: ierror
    stats%size = c_sizeof(stats)
    call finish("qcclCommGetStats", c_qcclCommGetStats(comm%handle, stats), ierror=ierror)
  end subroutine

end module qccl_objects
