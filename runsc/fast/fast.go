package fast

// Precompile is the path of the program, below the root of a [Tree], that has to be run with that root as its argument
// before the tree can be built. It writes the system call filters.
const Precompile = "runsc/precompile"

// Tree makes dir, which must not exist, a copy of the gVisor module at source with the patches applied. Before it can
// be built, run the program [Precompile]. If a file that is touched is not as patches/UPSTREAM says, before the patches
// or after them, Tree fails, and names the file and its patches.
func Tree(source, dir string) error {
	patches, err := series()
	if err != nil {
		return err
	}
	expected, err := Expected()
	if err != nil {
		return err
	}
	if err := expected.checkListed(patches); err != nil {
		return err
	}
	if err := expected.checkBefore(source, patches); err != nil {
		return err
	}
	if err := CopyModule(source, dir); err != nil {
		return err
	}
	for _, p := range patches {
		if err := p.apply(dir); err != nil {
			return err
		}
	}
	return expected.checkAfter(dir, patches)
}
