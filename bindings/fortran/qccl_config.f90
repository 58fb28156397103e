! The settings of a communicator, of a call and of a state, and the C structs that they become. Any thread may call the procedures; they
! do not block.
module qccl_config
  use, intrinsic :: iso_c_binding
  use qccl_constants, only: qcclFeedbackAll, qcclSuccess
  use qccl_handles, only: qcclCodec, qcclState
  use qccl_c
  implicit none
  private
  public :: c_text, fortran_text, ask_text, fill_config, fill_coll_config, fill_state_config ! of the binding alone

  abstract interface
    function text_function(handle, buffer, bytes) result(code) bind(c)
      import :: c_ptr, c_int32_t
      type(c_ptr), value :: handle, buffer, bytes
      integer(c_int32_t) :: code
    end function
    ! Called again and again while a collective waits long, from the thread that waits.
    subroutine qcclIdleFunction(context) bind(c)
      import :: c_ptr
      type(c_ptr), value :: context
    end subroutine
    ! Called with each line of the log, from any thread and from several at once; qcclString(line) is its text.
    subroutine qcclLogFunction(level, line, context) bind(c)
      import :: c_int32_t, c_ptr
      integer(c_int32_t), value :: level
      type(c_ptr), value :: line, context
    end subroutine
  end interface
  public :: qcclIdleFunction, qcclLogFunction

  ! The settings of one rank of a communicator: qcclConfig_t of qccl.h describes them. Texts that are not allocated, or blank,
  ! and numbers that are 0 stand for the defaults.
  type, public :: qcclConfig
    character(:), allocatable :: device, codec, algorithm, name
    real(c_double) :: timeout = 0, peer_timeout = 0
    procedure(qcclIdleFunction), pointer, nopass :: idle => null()
    type(c_ptr) :: idle_context = c_null_ptr
    procedure(qcclLogFunction), pointer, nopass :: log => null()
    type(c_ptr) :: log_context = c_null_ptr
    logical :: reproducible = .false., nonblocking = .false.
    integer(c_int64_t) :: fusion = 0
  end type

  ! A layer of an all-reduce: qcclLayer_t of qccl.h describes it.
  type, public :: qcclLayer
    integer(c_size_t) :: count = 0
    type(qcclCodec) :: codec = qcclCodec()
    type(qcclState) :: state = qcclState()
    integer(c_int32_t) :: dimensions = 0
  end type

  ! The settings of one call: qcclCollConfig_t of qccl.h describes them. Layers count from 0 in sentences of errors.
  type, public :: qcclCollConfig
    type(qcclCodec) :: codec = qcclCodec()
    character(:), allocatable :: algorithm
    real(c_double) :: timeout = 0
    integer(c_int64_t) :: tag = 0, stride = 0
    type(qcclState) :: state = qcclState()
    type(qcclLayer), allocatable :: layers(:)
    integer(c_int64_t) :: layer_min_size = 0
  end type

  ! The settings of a state: qcclStateConfig_t of qccl.h describes them.
  type, public :: qcclStateConfig
    integer(c_int64_t) :: seed = 0
    integer(c_int32_t) :: feedback = qcclFeedbackAll
    real(c_float) :: momentum = 0
  end type

  ! A text as C has it, while a call needs it.
  type :: text_type
    character(kind=c_char), allocatable :: characters(:)
  end type

  ! The C forms of the first two, and what they point to.
  type, public :: config_holder
    private
    type(c_qcclConfig) :: config
    type(text_type) :: device, codec, algorithm, name
  end type
  type, public :: coll_config_holder
    private
    type(c_qcclCollConfig) :: config
    type(text_type) :: algorithm
    type(c_qcclLayer), allocatable :: layers(:)
  end type

contains

  ! The text as an array that ends with a zero, without trailing blanks.
  pure function c_text(text) result(characters)
    character(*), intent(in) :: text
    character(kind=c_char) :: characters(len_trim(text) + 1)
    integer :: i
    do i = 1, len_trim(text)
      characters(i) = text(i:i)
    end do
    characters(len_trim(text) + 1) = c_null_char
  end function

  ! The text that a C function tells of an object, and its result. The text is not allocated after an error.
  subroutine ask_text(function, handle, text, result)
    procedure(text_function) :: function
    type(c_ptr), intent(in) :: handle
    character(:), allocatable, intent(out) :: text
    integer(c_int32_t), intent(out) :: result
    character(kind=c_char), allocatable, target :: answer(:)
    integer(c_size_t), target :: bytes
    bytes = 0
    result = function(handle, c_null_ptr, c_loc(bytes))
    if (result /= qcclSuccess) return
    allocate (answer(bytes))
    result = function(handle, c_loc(answer), c_loc(bytes))
    if (result == qcclSuccess) text = fortran_text(answer)
  end subroutine

  ! The text of an array that ends with a zero.
  pure function fortran_text(characters) result(text)
    character(kind=c_char), intent(in) :: characters(:)
    character(:), allocatable :: text
    integer :: i
    allocate (character(size(characters) - 1) :: text)
    do i = 1, len(text)
      text(i:i) = characters(i)
    end do
  end function

  ! The address of the text's C form, which `held` keeps, or NULL.
  subroutine hold_text(held, text, address)
    type(text_type), intent(inout), target :: held
    character(:), allocatable, intent(in) :: text
    type(c_ptr), intent(inout) :: address
    if (.not. allocated(text)) return
    if (len_trim(text) == 0) return
    allocate (held%characters, source=c_text(text))
    address = c_loc(held%characters)
  end subroutine

  ! The config that a function of the C API takes: NULL if the caller gives none. It is valid as long as `held`.
  function fill_config(held, config) result(address)
    type(config_holder), intent(inout), target :: held
    type(qcclConfig), intent(in), optional :: config
    type(c_ptr) :: address
    integer(c_int32_t) :: ignored
    address = c_null_ptr
    if (.not. present(config)) return
    address = c_loc(held%config)
    ignored = c_qcclConfigInit(address, c_sizeof(held%config))
    call hold_text(held%device, config%device, held%config%device)
    call hold_text(held%codec, config%codec, held%config%codec)
    call hold_text(held%algorithm, config%algorithm, held%config%algorithm)
    call hold_text(held%name, config%name, held%config%name)
    held%config%timeout = config%timeout
    held%config%peer_timeout = config%peer_timeout
    if (associated(config%idle)) held%config%idle = c_qcclIdle(c_funloc(config%idle), config%idle_context)
    if (associated(config%log)) held%config%log = c_qcclLog(c_funloc(config%log), config%log_context)
    held%config%reproducible = merge(1, 0, config%reproducible)
    held%config%nonblocking = merge(1, 0, config%nonblocking)
    held%config%fusion = config%fusion
  end function

  ! The same for a call. A codec that is an argument of its own takes the place of the config's.
  function fill_coll_config(held, config, codec) result(address)
    type(coll_config_holder), intent(inout), target :: held
    type(qcclCollConfig), intent(in), optional :: config
    type(qcclCodec), intent(in), optional :: codec
    type(c_ptr) :: address
    integer(c_int32_t) :: ignored
    address = c_null_ptr
    if (.not. present(config) .and. .not. present(codec)) return
    address = c_loc(held%config)
    ignored = c_qcclConfigInit(address, c_sizeof(held%config))
    if (present(config)) then
      held%config%codec = config%codec%handle
      call hold_text(held%algorithm, config%algorithm, held%config%algorithm)
      held%config%timeout = config%timeout
      held%config%tag = config%tag
      held%config%stride = config%stride
      held%config%state = config%state%handle
      held%config%layer_min_size = config%layer_min_size
      if (allocated(config%layers)) call hold_layers(held, config%layers)
    end if
    if (present(codec)) held%config%codec = codec%handle
  end function

  ! A list of no layers is one, which C refuses.
  subroutine hold_layers(held, layers)
    type(coll_config_holder), intent(inout), target :: held
    type(qcclLayer), intent(in) :: layers(:)
    integer :: i
    allocate (held%layers(max(1, size(layers))))
    do i = 1, size(layers)
      held%layers(i)%count = layers(i)%count
      held%layers(i)%codec = layers(i)%codec%handle
      held%layers(i)%state = layers(i)%state%handle
      held%layers(i)%dimensions = layers(i)%dimensions
    end do
    held%config%layers = c_loc(held%layers)
    held%config%nlayers = size(layers, kind=c_size_t)
  end subroutine

  ! The same for a state, of which `held` is the C form.
  function fill_state_config(held, config) result(address)
    type(c_qcclStateConfig), intent(inout), target :: held
    type(qcclStateConfig), intent(in), optional :: config
    type(c_ptr) :: address
    integer(c_int32_t) :: ignored
    address = c_null_ptr
    if (.not. present(config)) return
    address = c_loc(held)
    ignored = c_qcclConfigInit(address, c_sizeof(held))
    held%seed = config%seed
    held%feedback = config%feedback
    held%momentum = config%momentum
  end function

end module qccl_config
