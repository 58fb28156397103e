! Communicators of communicators, operations, codecs, states, streams, requests, groups, memory and types by an explicit
! datatype. Three or more ranks.
module objects_functions
  use, intrinsic :: iso_c_binding
  use qccl
  implicit none
  type(qcclComm), save :: meeting

contains

  ! Keeps the last value of another sign than the one before: it does not commute.
  function keep_first(accumulator, values, count, datatype, context) result(error) bind(c)
    type(c_ptr), value :: accumulator, values
    integer(c_size_t), value :: count
    integer(c_int32_t), value :: datatype
    type(c_ptr), value :: context
    integer(c_int) :: error
    integer, pointer :: a(:), b(:), calls
    call c_f_pointer(accumulator, a, [count])
    call c_f_pointer(values, b, [count])
    call c_f_pointer(context, calls)
    calls = calls + 1
    a = 10 * a + b
    error = merge(0, 9, datatype == qcclInt32%value)
  end function

  ! The larger of two squares, for real(8).
  function larger_square(accumulator, values, count, datatype, context) result(error) bind(c)
    type(c_ptr), value :: accumulator, values
    integer(c_size_t), value :: count
    integer(c_int32_t), value :: datatype
    type(c_ptr), value :: context
    integer(c_int) :: error
    real(8), pointer :: a(:), b(:)
    call c_f_pointer(accumulator, a, [count])
    call c_f_pointer(values, b, [count])
    where (b**2 > a**2) a = b
    error = merge(0, 9, datatype == qcclFloat64%value .and. .not. c_associated(context))
  end function

  ! An all-gather for qcclCommInitOob, over a communicator that is there already.
  function gather_bytes(mine, all, bytes, context) result(error) bind(c)
    type(c_ptr), value :: mine, all
    integer(c_size_t), value :: bytes
    type(c_ptr), value :: context
    integer(c_int) :: error
    integer(1), pointer :: from(:), to(:)
    integer, pointer :: ranks
    call c_f_pointer(context, ranks)
    call c_f_pointer(mine, from, [bytes])
    call c_f_pointer(all, to, [bytes * ranks])
    call qcclAllGather(from, to, meeting, ierror=error)
  end function
end module objects_functions

program fortran_objects
  use, intrinsic :: iso_c_binding
  use, intrinsic :: iso_fortran_env, only: int16
  use qccl
  use fortran_checks
  use objects_functions
  implicit none
  type, bind(c) :: located
    real(c_double) :: value
    integer(c_int32_t) :: place
  end type
  type(qcclComm) :: comm
  integer :: rank, ranks, ierror
  call qcclCommInitEnv(comm)
  meeting = comm
  call qcclCommUserRank(comm, rank)
  call qcclCommCount(comm, ranks)
  call make_operations()
  call name_datatypes()
  call encode_values()
  call choose_codecs_of_layers()
  call sum_layers()
  call keep_errors()
  call wait_for_requests()
  call make_groups()
  call use_memory()
  call make_communicators()
  call meet_by_id()
  call sum_exactly()
  call shrink_and_abort()
  call make_all_ranks()
  call ask()
  call qcclCommDestroy(comm)
  call end_of_checks(52)

contains

  subroutine make_operations()
    type(qcclRedOp) :: ordered, square, scaled
    integer, target :: calls
    integer :: digit, expected, r
    real(8) :: values(3)
    complex(8) :: z
    calls = 0
    call qcclRedOpCreate(ordered, keep_first, .false., c_loc(calls))
    call qcclRedOpCreate(square, c_funloc(larger_square), .true.)
    digit = rank + 1
    call qcclAllReduce(QCCL_IN_PLACE, digit, comm, ordered)
    expected = 0
    do r = 1, ranks
      expected = 10 * expected + r
    end do
    call check(digit == expected .and. calls > 0, "an operation that does not commute")
    values = [1d0, -2d0, 3d0] * (rank - 1)
    call qcclAllReduce(QCCL_IN_PLACE, values, comm, square)
    call check(all(abs(values) >= [1d0, 2d0, 3d0] * (ranks - 2)), "an operation by its address")
    call check(ordered /= square .and. ordered%value >= 1024, "operations are compared")
    call qcclRedOpDestroy(ordered)
    call qcclAllReduce(QCCL_IN_PLACE, digit, comm, ordered, ierror=ierror)
    call check(ierror == qcclInvalidArgument .or. ierror == qcclInvalidUsage, "an operation that has ended")
    values = 2
    call qcclRedOpCreatePreMulSum(scaled, 0.5d0 * rank, comm)
    call qcclAllReduce(QCCL_IN_PLACE, values, comm, scaled)
    call check(all(nint(values) == ranks * (ranks - 1) / 2), "products with each rank's scalar")
    call qcclRedOpDestroy(scaled)
    call qcclRedOpCreatePreMulSum(scaled, (0d0, 1d0), comm, qcclScalarHostImmediate)
    z = (1d0, 0d0)
    call qcclAllReduce(QCCL_IN_PLACE, z, comm, scaled)
    call check(nint(aimag(z)) == ranks, "products with a complex scalar")
    call qcclRedOpDestroy(scaled)
    call qcclRedOpDestroy(square)
  end subroutine

  subroutine name_datatypes()
    integer(int16) :: halves(4)
    integer :: flags(2)
    type(located) :: lowest(3)
    character(12) :: text
    integer :: i
    halves = int(z'3f80', int16) ! 1 in bfloat16
    call qcclAllReduce(QCCL_IN_PLACE, halves, comm, datatype=qcclBfloat16)
    call check(all(bf16_value(halves) == ranks), "bfloat16")
    halves = int(z'3c00', int16) ! 1 in fp16
    call qcclAllReduce(QCCL_IN_PLACE, halves, comm, datatype=qcclFloat16, op=qcclProd)
    call check(all(halves == int(z'3c00', int16)), "float16")
    flags = -1
    call qcclAllReduce(QCCL_IN_PLACE, flags, comm, datatype=qcclUint32, op=qcclMin)
    call check(all(flags == -1), "uint32")
    lowest = [(located(real(i + modulo(rank + i, ranks), 8), 100 * rank + i), i = 1, 3)]
    call qcclAllReduce(QCCL_IN_PLACE, lowest, comm, datatype=qcclDoubleInt, op=qcclMinLoc)
    call check(all(lowest%place == [(100 * modulo(-i, ranks) + i, i = 1, 3)]), "places of minima")
    text = "rank"
    if (rank == 2) text = "a dozen char"
    call qcclBroadcast(QCCL_IN_PLACE, text, 2, comm, datatype=qcclUint8)
    call check(text == "a dozen char", "a text as bytes")
    call qcclBroadcast(QCCL_IN_PLACE, text, 0, comm, datatype=qcclUint8, count=3_c_size_t)
    call check(text == merge("a dozen char", "a dozen char", rank == 0), "a part of a text")
  end subroutine

  elemental integer function bf16_value(bits)
    integer(int16), intent(in) :: bits
    bf16_value = nint(transfer(ishft(iand(int(bits), int(z'ffff')), 16), 1.0))
  end function

  subroutine encode_values()
    type(qcclCodec) :: codec
    type(qcclStream) :: stream
    real, asynchronous :: values(5, 20), decoded(5, 20)
    integer(1), allocatable, asynchronous :: container(:)
    integer(c_size_t) :: bytes, written
    character(:), allocatable :: spec
    integer :: i
    values = reshape([(sin(0.1 * i), i = 1, 100)], [5, 20])
    call qcclCodecCreate(codec, "int8")
    call qcclCodecGetSpec(codec, spec)
    call check(spec == "int8", "the spec of a codec")
    call qcclCodecMaxEncodedBytes(codec, size(values, kind=c_size_t), qcclFloat32, bytes)
    allocate (container(bytes))
    call qcclCodecEncode(codec, values, container, written)
    call check(written <= bytes .and. written < 400, "an encoded container is small")
    decoded = 0
    call qcclCodecDecode(codec, container(:written), decoded)
    call check(maxval(abs(decoded - values)) < 0.01, "decoded values are near")
    decoded = 0
    call qcclStreamCreate(stream)
    call qcclCodecEncode(codec, values, container, written, stream=stream)
    call qcclCodecDecode(codec, container, decoded, bytes=written, count=100_c_size_t, stream=stream)
    call qcclStreamSynchronize(stream)
    call check(maxval(abs(decoded - values)) < 0.01 .and. any(abs(decoded - values) > 0), "decoded values on a stream")
    container(70) = not(container(70))
    call qcclCodecDecode(codec, container(:written), decoded, ierror=ierror)
    call check(ierror == qcclDamagedData, "a damaged container")
    call qcclStreamDestroy(stream)
    call qcclCodecDestroy(codec)
  end subroutine

  ! The first layer is a hundred times as strong as the second one, so codecs with fewer bits fit the second.
  subroutine choose_codecs_of_layers()
    type(qcclLayerCodecs) :: layers, none
    type(qcclCodec) :: codec, other
    real :: values(64, 32)
    character(:), allocatable :: spec, text
    integer :: i
    call qcclLayerCodecsCreate(layers, [256_c_size_t, 2048_c_size_t], qcclFloat32, candidates="int3,int6,int8")
    call check(layers /= none .and. layers == layers, "layer codecs are compared")
    values = reshape([(sin(0.37 * i), i = 1, 2048)], [64, 32])
    call qcclLayerCodecsNote(layers, 0, 100 * values(:, :4))
    call qcclLayerCodecsNote(layers, 1, values)
    call qcclLayerCodecsGet(layers, 1, codec)
    call qcclCodecGetSpec(codec, spec)
    call check(spec == "int4", "the uniform codec comes first")
    call qcclLayerCodecsDecide(layers, comm)
    call qcclLayerCodecsGet(layers, 0, other)
    call qcclLayerCodecsGet(layers, 1, codec)
    call qcclCodecGetSpec(codec, spec)
    call check(spec == "int3" .and. codec /= other, "a weak layer gets fewer bits")
    call qcclLayerCodecsDescribe(layers, text)
    call check(index(text, "layer 1: count 2048, codec int3, 3.500 bits a value") > 0, "a choice is described: " // text)
    call qcclLayerCodecsDecide(layers)
    call qcclLayerCodecsGet(layers, 2, codec, ierror=ierror)
    call check(ierror == qcclInvalidArgument, "a layer that is not there")
    call qcclLayerCodecsDestroy(layers)
    call qcclLayerCodecsCreate(layers, [7_c_size_t], qcclFloat32, uniform="int99", ierror=ierror)
    call check(ierror == qcclInvalidArgument, "a uniform codec that is none")
  end subroutine

  ! Each layer has the bits of a sum of its own.
  subroutine sum_layers()
    type(qcclCodec) :: coarse
    type(qcclCollConfig) :: config
    real :: together(3000), alone(3000)
    integer :: i
    call qcclCodecCreate(coarse, "int4:block=64")
    together = [(sin(0.1 * i + rank), i=1, 3000)]
    alone = together
    config%layers = [qcclLayer(count=1500, codec=coarse), qcclLayer(count=10, codec=coarse), qcclLayer(count=1490, codec=coarse)]
    config%layers(3)%dimensions = 1
    call qcclAllReduce(QCCL_IN_PLACE, together, comm, config=config)
    call qcclAllReduce(QCCL_IN_PLACE, alone(:1500), comm, codec=coarse)
    call qcclAllReduce(QCCL_IN_PLACE, alone(1501:), comm)
    call check(all(abs(together - alone) <= 0), "layers")
    call qcclAllReduce(QCCL_IN_PLACE, together(:2999), comm, config=config, ierror=ierror)
    call check_refused(ierror, qcclInvalidArgument, qcclGetLastError(comm), "layers[2]: count is 1490")
    config%layers = [qcclLayer ::]
    call qcclAllReduce(QCCL_IN_PLACE, together, comm, config=config, ierror=ierror)
    call check(ierror == qcclInvalidArgument, "no layers")
    call qcclCodecDestroy(coarse)
  end subroutine

  ! The second sum pays what the first one owes, and does so again with the saved state.
  subroutine keep_errors()
    type(qcclState) :: state, again
    type(qcclCodec) :: codec
    type(qcclCollConfig) :: config
    real, asynchronous :: values(200), first(200), second(200), repeated(200)
    integer(1), allocatable :: saved(:)
    integer(c_size_t) :: bytes
    integer :: i
    values = [(sin(0.3 * i), i = 1, 200)]
    call qcclCodecCreate(codec, "onebit:min=0")
    call qcclStateCreate(state, comm, 200_c_size_t, qcclFloat32, qcclStateConfig(seed=4, feedback=qcclFeedbackFirst))
    config = qcclCollConfig(codec=codec, state=state)
    call qcclAllReduce(values, first, comm, config=config)
    call qcclStateBytes(state, bytes)
    allocate (saved(bytes))
    call qcclStateSave(state, saved)
    call qcclAllReduce(values, second, comm, config=config)
    call check(any(abs(second - first) > 0), "a state changes the next sum")
    call qcclStateCreate(again, comm, 200_c_size_t, qcclFloat32, qcclStateConfig(feedback=qcclFeedbackFirst))
    call check(again /= state, "two states")
    call qcclStateLoad(again, saved)
    config%state = again
    call qcclAllReduce(values, repeated, comm, config=config)
    call check(all(abs(repeated - second) <= 0), "a loaded state repeats the sum")
    call qcclStateReset(again)
    call qcclAllReduce(values, repeated, comm, config=config)
    call check(all(abs(repeated - first) <= 0), "a reset state begins again")
    call qcclStateDestroy(again)
    call qcclStateCreate(again, comm, 200_c_size_t, qcclFloat32, qcclStateConfig(momentum=0.5))
    call qcclStateLoad(again, saved, ierror=ierror)
    call check(ierror == qcclInvalidArgument, "a state without the momentum")
    call qcclStateBytes(again, bytes)
    call check(bytes == 64 + 2 * 4 * 200, "a state with a velocity for each element")
    call qcclStateDestroy(again)
    call qcclStateCreate(again, comm, 200_c_size_t, qcclFloat32, qcclStateConfig(feedback=qcclFeedbackFirst))
    saved(70) = not(saved(70))
    call qcclStateLoad(again, saved, ierror=ierror)
    call check(ierror == qcclDamagedData, "a damaged state")
    call qcclStateDestroy(again)
    call qcclStateDestroy(state)
    call qcclAllReduce(values, repeated, comm, config=config, ierror=ierror)
    call check(ierror == qcclInvalidUsage, "a destroyed state")
    call qcclCodecDestroy(codec)
  end subroutine

  subroutine wait_for_requests()
    type(qcclStream) :: streams(2)
    type(qcclRequest) :: requests(4), none(2)
    integer, asynchronous :: values(8, 3)
    integer :: i, index
    logical :: is_done
    do i = 1, 2
      call qcclStreamCreate(streams(i))
    end do
    values = 1
    do i = 1, 3
      call qcclAllReduce(QCCL_IN_PLACE, values(:, i), comm, stream=streams(1))
      call qcclRequestRecord(streams(1), requests(i))
    end do
    call qcclWaitAny(requests, index)
    call check(index == 1 .and. requests(1) == qcclRequest(), "the first request is done first")
    call check(all(values(:, 1) == ranks), "what the first request stands for")
    do
      call qcclTest(requests(2), is_done)
      if (is_done) exit
    end do
    call check(requests(2) == qcclRequest() .and. all(values(:, 2) == ranks), "a test finds a request done")
    call qcclRequestRecord(streams(2), requests(1))
    call qcclWaitAll(requests)
    call check(all(requests == qcclRequest()) .and. all(values == ranks), "all requests are done")
    call qcclWaitAny(none, index)
    call check(index == 0, "no request")
    call qcclWaitAll(none(:0))
    call qcclRequestRecord(streams(1), requests(1))
    call qcclRequestFree(requests(1))
    call qcclStreamQuery(streams(1), is_done, ierror)
    call check(is_done .and. ierror == qcclSuccess, "an empty queue")
    do i = 1, 2
      call qcclStreamSynchronize(streams(i))
      call qcclStreamDestroy(streams(i))
    end do
    call qcclStreamQuery(streams(1), is_done, ierror)
    call check(ierror == qcclInvalidUsage, "a stream that has ended")
    values = 1
    call qcclAllReduce(QCCL_IN_PLACE, values, comm, stream=QCCL_STREAM_SYNC)
    call check(all(values == ranks), "QCCL_STREAM_SYNC")
  end subroutine

  subroutine make_groups()
    integer :: sent, received, i
    real :: sums(3)
    sent = rank
    sums = 1
    call qcclGroupStart()
    call qcclRecv(received, modulo(rank - 1, ranks), comm)
    call qcclSend(sent, modulo(rank + 1, ranks), comm)
    do i = 1, 3
      call qcclAllReduce(QCCL_IN_PLACE, sums(i), comm, config=qcclCollConfig(algorithm="ring", tag=i))
    end do
    call check(all(nint(sums) == 1), "nothing happens before the end of a group")
    call qcclGroupEnd()
    call check(received == modulo(rank - 1, ranks) .and. all(nint(sums) == ranks), "a group of calls")
    call qcclGroupEnd(ierror)
    call check(ierror == qcclInvalidUsage, "the end of no group")
  end subroutine

  subroutine use_memory()
    type(c_ptr) :: pointer
    type(qcclRegistration) :: registration
    real(8), pointer, contiguous :: values(:, :)
    call qcclMemAlloc(pointer, 1048576_c_size_t)
    call c_f_pointer(pointer, values, [256, 512])
    call qcclCommRegister(comm, values, registration)
    call check(registration /= qcclRegistration(), "a registration")
    values = rank
    call qcclAllReduce(QCCL_IN_PLACE, values, comm)
    call check(all(nint(values) == ranks * (ranks - 1) / 2), "registered memory")
    call qcclMemFree(pointer, ierror)
    call check(ierror == qcclInvalidUsage, "registered memory is not freed")
    call qcclCommDeregister(comm, registration)
    call qcclMemFree(pointer)
  end subroutine

  subroutine make_communicators()
    type(qcclComm) :: half, copy
    integer :: count, place, one
    call qcclCommSplit(comm, mod(rank, 2), -rank, half)
    call qcclCommCount(half, count)
    call qcclCommUserRank(half, place)
    call check(count == (ranks + 1 - mod(rank, 2)) / 2 .and. place == count - 1 - rank / 2, "a split with keys")
    one = 1
    call qcclAllReduce(QCCL_IN_PLACE, one, half)
    call check(one == count, "a sum over a part")
    call qcclCommDestroy(half)
    call qcclCommSplit(comm, merge(QCCL_SPLIT_NOCOLOR, QCCL_SPLIT_NODE, rank == 0), 0, half)
    call check((half == qcclComm()) .eqv. (rank == 0), "a split without a color")
    call qcclCommDestroy(half)
    call qcclCommInitOob(copy, ranks, rank, gather_bytes, c_loc_of_ranks())
    call qcclCommCount(copy, count)
    call check(count == ranks .and. copy /= comm, "a communicator by an all-gather")
    call qcclCommFinalize(copy)
    call qcclCommDestroy(copy)
  end subroutine

  function c_loc_of_ranks() result(address)
    integer, save, target :: number
    type(c_ptr) :: address
    number = ranks
    address = c_loc(number)
  end function

  ! Ranks 0 and 1 meet by an id, and the others join them.
  subroutine meet_by_id()
    type(qcclUniqueId) :: ids(2)
    type(qcclComm) :: two, grown
    integer :: one
    if (rank == 0) call qcclGetUniqueId(ids(1))
    if (rank == 0) call qcclGetUniqueId(ids(2))
    call qcclBroadcast(QCCL_IN_PLACE, ids, 0, comm, datatype=qcclInt8)
    if (rank < 2) call qcclCommInitRank(two, 2, ids(1), rank)
    one = 1
    if (rank < 2) call qcclAllReduce(QCCL_IN_PLACE, one, two)
    if (rank < 2) call check(one == 2, "a communicator by an id")
    if (rank == 0) then
      call qcclCommGrow(two, ranks, ids(2), -1, grown)
    else if (rank == 1) then
      call qcclCommGrow(two, ranks, rank=-1, grown=grown)
    else
      call qcclCommGrow(qcclComm(), ranks, ids(2), rank, grown)
    end if
    one = 1
    call qcclAllReduce(QCCL_IN_PLACE, one, grown)
    call check(one == ranks, "a communicator that has grown")
    call qcclCommDestroy(grown)
    call qcclCommDestroy(two)
  end subroutine

  ! The ranks have different numbers of values, rank 0 none.
  subroutine sum_exactly()
    real(8) :: values(3), total
    type(qcclCodec) :: exact
    values = [1d100, 1d0, -1d100]
    call qcclSumExact(values(1:merge(0, 3, rank == 0)), total, comm)
    call check(nint(total) == ranks - 1, "an exact sum")
    call qcclSumExact(values(3:1:-1), total, comm)
    call check(nint(total) == ranks, "an exact sum of values that do not follow each other")
    call qcclCodecCreate(exact, "exact")
    call qcclAllReduce(QCCL_IN_PLACE, values, comm, codec=exact)
    call qcclCodecDestroy(exact)
    call check(nint(values(2)) == ranks .and. values(1) > 2d100, "sums by codec exact")
  end subroutine

  subroutine shrink_and_abort()
    type(qcclComm) :: copy, rest
    integer :: count, result
    call qcclCommDup(comm, copy)
    if (rank /= 1) then
      call qcclCommShrink(copy, rest, exclude=[1])
      call qcclCommCount(rest, count)
      call check(count == ranks - 1, "a shrunk communicator")
      call qcclCommDestroy(rest)
    end if
    call qcclBarrier(comm)
    call qcclCommRevoke(copy)
    call qcclCommGetAsyncError(copy, result)
    call check(result == qcclRevoked, "a revoked communicator")
    if (rank /= 1) then
      call qcclCommShrink(copy, rest, flags=QCCL_SHRINK_ABORT, exclude=[1])
      call qcclCommDestroy(rest)
    end if
    call qcclBarrier(comm)
    call qcclCommAbort(copy)
    call qcclCommAbort(copy, ierror)
    call check(ierror == qcclInvalidUsage, "an aborted communicator has ended")
  end subroutine

  ! Ranks of one process, served by one thread: each has a stream.
  subroutine make_all_ranks()
    type(qcclComm) :: comms(3)
    type(qcclStream) :: streams(3)
    integer, asynchronous :: values(3)
    integer :: i, place
    call qcclCommInitAll(comms, ["host ", "host ", "host "])
    values = [1, 10, 100]
    do i = 1, 3
      call qcclStreamCreate(streams(i))
      call qcclCommUserRank(comms(i), place)
      call check(place == i - 1, "a rank of this process")
      call qcclAllReduce(QCCL_IN_PLACE, values(i), comms(i), stream=streams(i))
    end do
    do i = 1, 3
      call qcclStreamSynchronize(streams(i))
      call qcclStreamDestroy(streams(i))
    end do
    call check(all(values == 111), "a sum over ranks of this process")
    do i = 1, 3
      call qcclCommAbort(comms(i))
    end do
    call qcclCommInitAll(comms, ["host ", "what?"], ierror)
    call check(ierror == qcclInvalidArgument, "devices that are not there")
    call qcclCommInitAll(comms(:2))
    call qcclCommAbort(comms(1))
    call qcclCommAbort(comms(2))
  end subroutine

  subroutine ask()
    type(qcclCommStats) :: before, after
    integer :: version
    real :: values(5000)
    call qcclGetVersion(version)
    call check(version == QCCL_VERSION, "the version")
    call qcclCommGetStats(comm, before)
    values = 1
    call qcclAllReduce(QCCL_IN_PLACE, values, comm)
    call qcclCommGetStats(comm, after)
    call check(after%calls == before%calls + 1 .and. after%raw_bytes == before%raw_bytes + 20000, "statistics")
  end subroutine

end program fortran_objects
