package snapshot

// Terminal is the settings and the size of a container's terminal, as in termios(3) and tty_ioctl(4).
type Terminal struct {
	Input      uint32 `json:"iflag"`
	Output     uint32 `json:"oflag"`
	Control    uint32 `json:"cflag"`
	Local      uint32 `json:"lflag"`
	Characters []byte `json:"cc,omitempty"`
	Rows       uint16 `json:"rows,omitempty"`
	Columns    uint16 `json:"columns,omitempty"`
}
