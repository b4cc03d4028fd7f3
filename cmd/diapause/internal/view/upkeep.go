package view

import (
	"fmt"
	"io"

	localv1 "diapause.dev/api/local/v1"
	"diapause.dev/cmd/diapause/internal/progress"
	"diapause.dev/cmd/internal/table"
)

// Removal is the result of "rm".
type Removal struct {
	Removed []string `json:"removed"`
	Errors  []string `json:"errors"`
}

// Table writes a line for each removed snapshot. The caller reports errors.
func (r Removal) Table(w io.Writer) error {
	for _, k := range r.Removed {
		fmt.Fprintln(w, "removed", table.Clean(k))
	}
	return nil
}

// Verification is the result of "verify".
type Verification struct {
	OK        bool       `json:"ok"`
	Snapshots []Verified `json:"snapshots"`
}

// Verified is the result for one snapshot.
type Verified struct {
	Namespace string   `json:"namespace"`
	Name      string   `json:"name"`
	OK        bool     `json:"ok"`
	Problems  []string `json:"problems"`
	Repaired  []string `json:"repaired,omitempty"`  // what was damaged and has been replaced
	AlsoHurt  []string `json:"also_hurt,omitempty"` // other snapshots that need what is still damaged

	Signatures []Signature `json:"signatures"` // for each place where its manifest can be read
}

// Signature says who has signed a snapshot, as one store has it.
type Signature struct {
	Store   string `json:"store"`
	Signer  string `json:"signer"`  // fingerprint of the signer's key; empty: not signed
	Refused bool   `json:"refused"` // the agent does not restore it, because of its signer or for want of one
}

// String says it in words.
func (s Signature) String() string {
	words := "not signed"
	if s.Signer != "" {
		words = "signed by " + s.Signer
	}
	if s.Refused {
		words += ", and not restored: see --trusted-keys of diapause-agent"
	}
	return words
}

// Add adds one result.
func (v *Verification) Add(r *localv1.VerifyResult) {
	v.OK = v.OK && r.GetOk()
	s := Verified{
		Namespace: r.GetNamespace(), Name: r.GetSnapshot(), OK: r.GetOk(), Problems: listOf(r.GetProblems()),
		Repaired: r.GetRepaired(), AlsoHurt: r.GetAlsoHurt(), Signatures: []Signature{},
	}
	for _, g := range r.GetSignatures() {
		s.Signatures = append(s.Signatures, Signature{g.GetStore(), g.GetSigner(), g.GetRefused()})
	}
	v.Snapshots = append(v.Snapshots, s)
}

// signatures returns who has signed a snapshot: one line if it is the same everywhere, otherwise one for each place.
func (s *Verified) signatures() (lines []string) {
	same := true
	for _, g := range s.Signatures {
		same = same && g.String() == s.Signatures[0].String()
		lines = append(lines, g.Store+": "+g.String())
	}
	if same && len(lines) > 0 {
		return []string{s.Signatures[0].String()}
	}
	return lines
}

// Table writes a row for each snapshot, and below it what is wrong.
func (v *Verification) Table(w io.Writer) error {
	for _, s := range v.Snapshots {
		fmt.Fprintf(w, "%s  %s\n", okWord(s.OK), table.Cell(s.Namespace+"/"+s.Name))
		for _, g := range s.signatures() {
			fmt.Fprintf(w, "      %s\n", table.Cell(g))
		}
		for _, p := range s.Problems {
			fmt.Fprintf(w, "      %s\n", table.Cell(p))
		}
		for _, o := range s.Repaired {
			fmt.Fprintf(w, "      repaired %s\n", table.Cell(o))
		}
		for _, k := range s.AlsoHurt {
			fmt.Fprintf(w, "      this also damages %s\n", table.Cell(k))
		}
	}
	return nil
}

// Sweep is the result of "gc".
type Sweep struct {
	DryRun  bool     `json:"dry_run"`
	Packs   int64    `json:"packs"`
	Bytes   int64    `json:"bytes"`
	Objects []string `json:"objects"`
}

// NewSweep converts the agent's result.
func NewSweep(r *localv1.SweepResult, dryRun bool) Sweep {
	return Sweep{dryRun, r.GetPacks(), r.GetBytes(), listOf(r.GetObjects())}
}

// Table writes the objects and their sum.
func (s Sweep) Table(w io.Writer) error {
	verb := "deleted"
	if s.DryRun {
		verb = "would delete"
	}
	for _, o := range s.Objects {
		fmt.Fprintln(w, verb, table.Cell(o))
	}
	if more := s.Packs - int64(len(s.Objects)); more > 0 {
		fmt.Fprintf(w, "%s %d more, not named here\n", verb, more)
	}
	_, err := fmt.Fprintf(w, "%s %d packs, %s\n", verb, s.Packs, progress.Size(s.Bytes))
	return err
}

// okWord is four bytes wide.
func okWord(ok bool) string {
	if ok {
		return "ok  "
	}
	return "FAIL"
}
