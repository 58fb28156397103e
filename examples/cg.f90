! One implicit step of the heat equation on a square of n * n points, by conjugate gradients, once for each codec. Any launcher
! may start the ranks, whose number divides n: each has a block of columns.
!
!     gfortran -O2 cg.f90 -o cg $(pkg-config --cflags --libs qccl-fortran) && mpirun -n 4 ./cg
!
! Each step gathers the residual r, and a codec may change what is gathered. All ranks, also the sender of a block, then have the
! same decoded z, and go the same way p. The step along p follows from dot products of p itself, in full precision, and r is
! computed from x, which every rank has, so no error of a codec stays in r. An encoded z is only a less good way: CG with z as a
! preconditioned residual (flexible CG) comes to the same tolerance in some more steps. Without a codec z = r, which is plain CG.
! A worse conditioned matrix costs more of them: without `capacity` in `diagonal`, none takes 455, bf16 736 and int8 914.
! min=0 asks for the codec also between hosts whose links' rate QCCL does not know.
program cg
  use qccl
  implicit none
  integer, parameter :: n = 240; character(10), parameter :: codecs(3) = ["none      ", "bf16:min=0", "int8:min=0"]
  real(8), parameter :: capacity = 0.01d0, diagonal = 4 + capacity
  integer :: rank, ranks, a, e, i, step, begin, now, rate
  real(8) :: s(4), pq, x(n, 0:n+1), p(n, 0:n+1), z(n, 0:n+1) = 0 ! with a column of zeros at each edge
  real(8), allocatable, dimension(:, :) :: r, w, q ! the columns a to e of this rank; w is the matrix times z, q times p
  type(qcclComm) :: comm; type(qcclCodec) :: codec
  call qcclCommInitEnv(comm); call qcclCommUserRank(comm, rank); call qcclCommCount(comm, ranks)
  a = rank * (n / ranks) + 1; e = a + n / ranks - 1; if (rank == 0) print '(a)', "codec      steps seconds   residual"
  do i = 1, 3
    call qcclCodecCreate(codec, codecs(i)); call system_clock(begin, rate); x = 0; p = 0; q = 0 * z(:, a:e); pq = 1
    do step = 0, 9999
      r = capacity - diagonal * x(:, a:e) + x(:, a-1:e-1) + x(:, a+1:e+1) + eoshift(x(:, a:e), 1) + eoshift(x(:, a:e), -1)
      call qcclAllGather(r, z(:, 1:n), comm, codec=codec)
      w = diagonal * z(:, a:e) - z(:, a-1:e-1) - z(:, a+1:e+1) - eoshift(z(:, a:e), 1) - eoshift(z(:, a:e), -1)
      s = [sum(r**2), sum(z(:, a:e)*q), sum(z(:, a:e)*w), sum(z(:, a:e)*r)]; call qcclAllReduce(QCCL_IN_PLACE, s, comm)
      if (s(1) < 1d-16) exit
      p = z - s(2) / pq * p; q = w - s(2) / pq * q; pq = s(3) - s(2)**2 / pq; x = x + s(4) / pq * p
    end do
    call system_clock(now); if (rank == 0) print '(a, i6, f8.3, es11.2)', codecs(i), step, (now - begin) / real(rate), sqrt(s(1))
  end do
  call qcclCommDestroy(comm)
end program
