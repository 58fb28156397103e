! What the binding and the library refuse, and what ierror and the sentences say of it. Two or more ranks. A refused call is no
! call: the communicator stays usable.
program fortran_refusals
  use, intrinsic :: iso_c_binding, only: c_size_t, c_ptr, c_null_ptr, c_int32_t
  use qccl
  use fortran_checks
  implicit none
  type(qcclComm) :: comm
  integer :: rank, ranks, ierror
  call qcclCommInitEnv(comm)
  call qcclCommUserRank(comm, rank)
  call qcclCommCount(comm, ranks)
  call refuse_arrays()
  call refuse_counts()
  call refuse_types()
  call refuse_roots()
  call refuse_v_forms()
  call refuse_objects()
  call forget_refusals()
  call fail_by_mismatch()
  call use_after_end()
  call end_of_checks(70)

contains

  subroutine see(why, expected)
    character(*), intent(in) :: why
    integer, intent(in), optional :: expected
    real :: x
    if (present(expected)) then
      call check_refused(ierror, expected, qcclGetLastError(), why)
    else
      call check_refused(ierror, qcclInvalidArgument, qcclGetLastError(), why)
      call check_sentence(qcclGetLastError(comm), why)
    end if
    x = rank
    call qcclAllReduce(QCCL_IN_PLACE, x, comm, ierror=ierror)
    call check(ierror == qcclSuccess .and. nint(x) == ranks * (ranks - 1) / 2, "a call after: " // why)
    call check(qcclGetLastError(comm) == "", "no sentence after a call that succeeded")
  end subroutine

  subroutine refuse_arrays()
    real, asynchronous :: a(6, 4), b(6, 4)
    type(qcclStream) :: stream
    a = 1
    b = 0
    call qcclAllReduce(a(::2, :), b(:3, :), comm, ierror=ierror)
    call see("send is not contiguous")
    call qcclAllReduce(a(:, 1:2), b(1:3, :), comm, ierror=ierror)
    call see("recv is not contiguous")
    call qcclStreamCreate(stream)
    call qcclAllReduce(a(::2, :), b(:, :2), comm, stream=stream, ierror=ierror)
    call see("send is not contiguous")
    call qcclStreamSynchronize(stream)
    call qcclSend(a(2, :), modulo(rank + 1, ranks), comm, stream=stream, ierror=ierror)
    call see("send is not contiguous")
    call qcclStreamDestroy(stream)
    call check(all(abs(b) <= 0), "refused calls write nothing")
    ! One element, and none, are contiguous.
    call qcclAllReduce(a(::6, ::4), b(::6, ::4), comm)
    call check(nint(b(1, 1)) == ranks, "one element of a section")
    call qcclAllReduce(a(:0, :), b(:0, :), comm)
    ! What is not contiguous is sent as an expression, of which the compiler makes a copy.
    call qcclAllReduce((a(::2, :)), b(:, :2), comm)
    call check(all(nint(b(:, :2)) == ranks), "an expression")
  end subroutine

  subroutine refuse_counts()
    integer :: a(12), b(13)
    a = 1
    b = 0
    call qcclAllReduce(a, b, comm, ierror=ierror)
    call see("recv has 13 elements, and the call needs 12")
    call qcclAllReduce(a, b, comm, count=13_c_size_t, ierror=ierror)
    call see("send has 12 elements, too few for a count of 13")
    call qcclAllReduce(a, b, comm, count=-1_c_size_t, ierror=ierror)
    call see("count is less than 0")
    call qcclAllGather(a, b, comm, ierror=ierror)
    call see("recv has 13 elements, and the call needs")
    call qcclAllGather(a(:5), b, comm, count=7_c_size_t, ierror=ierror)
    call see("send has 5 elements, too few for a count of 7")
    call qcclAllGather(a, b, comm, count=12_c_size_t, ierror=ierror)
    call see("recv has 13 elements, too few for blocks of 12")
    call qcclReduceScatter(QCCL_IN_PLACE, a(:2 * ranks + 1), comm, ierror=ierror)
    call see("elements, and the call needs")
    call assumed_size(a, b)
    call qcclAllReduce(a, b, comm, count=12_c_size_t)
    call check(all(b(:12) == ranks) .and. b(13) /= ranks, "a count for a part of an array")
    call qcclAllReduce(a, b(:12), comm, config=qcclCollConfig(stride=3), ierror=ierror)
    call see("stride")
    call qcclAllToAll(a, b, comm, config=qcclCollConfig(stride=3), ierror=ierror)
    call see("pass count: it does not follow from vectors with a stride")
    call qcclAllGather(a(:2), b(:2), comm, config=qcclCollConfig(stride=3), ierror=ierror)
    call see("recv has 2 elements, too few for blocks of 2")
    ! Enough for the blocks, and too few for the gaps between them.
    call qcclAllGather(a(:2), b(:2 * ranks), comm, config=qcclCollConfig(stride=3), ierror=ierror)
    call see("elements, too few for blocks of 2")
  end subroutine

  subroutine assumed_size(a, b)
    integer, intent(in) :: a(*)
    integer, intent(inout) :: b(*)
    call qcclAllReduce(a, b, comm, ierror=ierror)
    call see("pass count: it does not follow from assumed-size arrays")
    call qcclAllReduce(a, b, comm, count=2_c_size_t)
    call check(all(b(:2) == ranks), "assumed-size arrays with a count")
    b(:2) = 0
    call assumed_bytes(int([1, 0, 2, 0], 1), 4)
    call no_elements(-3)
  end subroutine

  ! Elements of one byte, of which the caller says that they are others.
  subroutine assumed_bytes(a, n)
    integer(1), intent(in) :: a(*)
    integer, intent(in) :: n
    integer(1) :: b(n)
    call qcclAllReduce(a, b, comm, count=2_c_size_t, datatype=qcclInt16)
    call check(all(b == [ranks, 0, 2 * ranks, 0]), "assumed-size arrays of another type")
  end subroutine

  ! gfortran passes a negative extent.
  subroutine no_elements(n)
    integer, intent(in) :: n
    integer :: a(n)
    call qcclAllReduce(QCCL_IN_PLACE, a, comm, ierror=ierror)
    call check(ierror == qcclSuccess, "arrays without elements")
    call qcclAllReduce(QCCL_IN_PLACE, a, comm, count=1_c_size_t, ierror=ierror)
    call see("recv has 0")
  end subroutine

  subroutine refuse_types()
    real(8) :: a(3), b(3)
    real(4) :: c(3)
    logical :: l(2), m(2)
    character(3) :: text
    type(c_ptr) :: pointer
    complex(8) :: z(2), y(2)
    a = 1
    l = .true.
    z = 1
    text = "abc"
    pointer = transfer(1_8, pointer)
    call qcclAllReduce(a, c, comm, ierror=ierror)
    call see("send is qcclFloat64, and recv is qcclFloat32")
    call qcclSendRecv(a, 0, c, 0, comm, ierror=ierror)
    call see("send is qcclFloat64, and recv is qcclFloat32")
    call qcclBroadcast(QCCL_IN_PLACE, text, 0, comm, ierror=ierror)
    call see("QCCL has no type of its own for the elements of recv")
    call qcclAllReduce(text, c, comm, datatype=qcclFloat32, ierror=ierror)
    call see("send has 3 bytes, which is no multiple of the 4 of qcclFloat32")
    call qcclAllReduce(a, b, comm, datatype=qcclDataType(1000), ierror=ierror)
    call see("datatype 1000 is no type of QCCL")
    call qcclAllReduce(l, m, comm, ierror=ierror)
    call see("logical values are combined by qcclLogicalAnd")
    call qcclAllReduce(l, m, comm, op=qcclMax, ierror=ierror)
    call see("logical values are combined by qcclLogicalAnd")
    call qcclAllReduce(z, y, comm, op=qcclMax, ierror=ierror)
    call see("op is max")
    call qcclAllReduce(QCCL_IN_PLACE, a, comm, op=qcclRedOp(12345), ierror=ierror)
    call see("12345")
  end subroutine

  subroutine refuse_roots()
    real, allocatable :: mine(:), every(:)
    mine = [1.0, 2.0]
    call qcclReduce(mine, every, ranks, comm, ierror=ierror)
    call see("root")
    if (rank == 0) then
      call qcclGather(QCCL_IN_PLACE, mine, 1, comm, ierror=ierror)
    else
      call qcclGather(QCCL_IN_PLACE, every, 0, comm, ierror=ierror)
    end if
    call see("QCCL_IN_PLACE is for the root")
    call qcclGather(mine, every, rank, comm, ierror=ierror)
    call see("recv")
    call qcclBroadcast(QCCL_IN_PLACE, every, 0, comm, ierror=ierror)
    call see("this rank passes no array")
    call qcclSend(QCCL_IN_PLACE, 0, comm, ierror=ierror)
    call see("this rank passes no array")
    call qcclSendRecv(QCCL_IN_PLACE, 0, mine, 0, comm, ierror=ierror)
    call see("a message has no QCCL_IN_PLACE")
  end subroutine

  subroutine refuse_v_forms()
    integer :: mine(2), every(8)
    integer(c_size_t) :: twos(ranks), few(ranks - 1)
    type(qcclColl) :: coll
    twos = 2
    few = 1
    call qcclAllGatherV(mine, every, few, comm, ierror=ierror)
    call see("recv_counts has")
    call qcclAllGatherV(mine, every, twos, comm, displs=few, ierror=ierror)
    call see("recv_displs has")
    call qcclAllGatherV(mine, every, twos, comm, displs=[twos(2:) - 2, 7_c_size_t], ierror=ierror)
    call see("2 elements behind 7, does not lie in recv, which has 8")
    call qcclAllGatherV(mine(:1), every, twos, comm, ierror=ierror)
    call see("send has 1 elements, too few for a count of 2")
    call qcclReduceScatterV(every(:2 * ranks - 1), mine, twos, comm, ierror=ierror)
    call see("does not lie in send")
    call qcclGatherV(mine, every, root=rank, comm=comm, ierror=ierror)
    call see("has to pass the counts of recv")
    call qcclAllToAllV(every, twos, every(:0), twos, comm, ierror=ierror)
    call see("does not lie in recv, which has 0")
    call qcclAllToAllV(every, -twos, mine, 0 * twos, comm, ierror=ierror)
    call see("does not lie in send")
    call qcclCollCreateV(coll, qcclCollAllGather, mine, every, comm, recv_counts=twos, ierror=ierror)
    call see("collective 2 is no v-form")
    call qcclCollCreate(coll, qcclCollAllGatherV, mine, every, comm, ierror=ierror)
    call see("is unknown, or a v-form")
    call qcclCollCreate(coll, 999, mine, every, comm, ierror=ierror)
    call see("collective 999 is unknown")
    call check(coll == qcclColl(), "no prepared call")
  end subroutine

  subroutine refuse_objects()
    type(qcclCodec) :: codec, other
    type(qcclRedOp) :: op
    character(1) :: box(4)
    character(4) :: text
    real :: values(4)
    integer(c_size_t) :: written
    type(qcclErrorInfo) :: info
    values = 1
    text = "text"
    call qcclCodecCreate(codec, "int8:block=banana", ierror)
    call check_refused(ierror, qcclInvalidArgument, qcclGetLastError(), "banana")
    call check(codec == qcclCodec(), "no codec")
    call qcclCodecCreate(codec, "int8   ")
    call qcclCodecEncode(codec, values(::2), box, written, ierror=ierror)
    call check_refused(ierror, qcclInvalidArgument, qcclGetLastError(), "send is not contiguous")
    call qcclCodecEncode(codec, values, box, written, ierror=ierror)
    call check_refused(ierror, qcclInvalidArgument, qcclGetLastError(), "4")
    call qcclCodecDecode(codec, box, values, ierror=ierror)
    call check(ierror == qcclDamagedData, "damaged data")
    call qcclRedOpCreatePreMulSum(op, text, comm, ierror=ierror)
    call see("no type of its own")
    call qcclAllReduce(QCCL_IN_PLACE, values, comm, codec=other, stream=qcclStream(transfer(12345_8, c_null_ptr)), ierror=ierror)
    call check(ierror == qcclInvalidArgument, "no stream")
    call qcclGetErrorInfo(comm, info)
    call check(info%code == qcclInvalidArgument .and. info%rank == rank, "parts of an error")
    call qcclCodecDestroy(codec)
    call qcclAllReduce(QCCL_IN_PLACE, values, comm, codec=codec, ierror=ierror)
    call see("codec", qcclInvalidUsage)
    call check(qcclGetErrorString(qcclMismatch) /= qcclGetErrorString(qcclTimeout), "words for results")
  end subroutine

  ! A refusal of the binding belongs to its communicator, and lasts until the next error.
  subroutine forget_refusals()
    type(qcclCodec) :: codec
    type(qcclComm) :: copy
    integer :: one
    real :: other
    call qcclCommDup(comm, copy)
    one = 1
    call qcclAllReduce(one, other, copy, ierror=ierror)
    call check_sentence(qcclGetLastError(copy), "send is qcclInt32")
    call check(qcclGetLastError(comm) == "", "the other communicator has no error")
    call qcclAllReduce(QCCL_IN_PLACE, one, comm)
    call check_sentence(qcclGetLastError(copy), "send is qcclInt32")
    call check_sentence(qcclGetLastError(), "send is qcclInt32")
    call qcclCodecCreate(codec, "nothing", ierror)
    call check_sentence(qcclGetLastError(), "nothing")
    call check_sentence(qcclGetLastError(copy), "send is qcclInt32")
    call qcclAllReduce(QCCL_IN_PLACE, one, copy)
    call check(qcclGetLastError(copy) == "", "a call that succeeds has no sentence")
    call qcclCommDestroy(copy)
  end subroutine

  subroutine fail_by_mismatch()
    integer :: values(5), result
    values = 1
    call qcclAllReduce(QCCL_IN_PLACE, values(:4 + min(rank, 1)), comm, ierror=ierror)
    call check_refused(ierror, qcclMismatch, qcclGetLastError(comm), "rank 1")
    call qcclCommGetAsyncError(comm, result)
    call check(result == qcclMismatch, "the communicator has failed")
  end subroutine

  subroutine use_after_end()
    integer :: one
    one = 1
    call qcclCommDestroy(comm, ierror)
    call check(ierror == qcclSuccess, "the end of a failed communicator")
    call qcclAllReduce(QCCL_IN_PLACE, one, comm, ierror=ierror)
    call check(ierror == qcclInvalidUsage, "a call after the end")
    call qcclAllGather(QCCL_IN_PLACE, one, comm, ierror=ierror)
    call check(ierror == qcclInvalidUsage, "another call after the end")
    call qcclAllReduce(QCCL_IN_PLACE, one, qcclComm(), ierror=ierror)
    call check(ierror == qcclInvalidArgument, "no communicator")
  end subroutine

end program fortran_refusals
