// Command release builds the image of Diapause from a commit, and writes the papers that go with it:
//
//	release --out .cache/release --revision HEAD
//
// In the directory --out are then
//
//   - image.tar, the image as an OCI archive
//   - digest, the image's digest, by which a registry names it
//   - root, the files of the image, from which the Dockerfile makes one, too
//   - sbom.cdx.json, the bill of materials: CycloneDX 1.6
//   - provenance.json, the provenance: an in-toto statement v1 with a predicate of SLSA v1
//   - plugin, the plugin of kubectl: an archive for each platform, their checksums, and a manifest for krew if
//     --version and --plugin-uri say what it is to name
//
// The image has no base: all of its files are programs that this command builds from Go modules. One commit and one
// version of Go give the same files, byte for byte, on any machine of the same architecture.
// docs/security/supply-chain.md says how to check that.
package main
