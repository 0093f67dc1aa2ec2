// SPDX-License-Identifier: Apache-2.0

package build

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/slipway-k8s/slipway/internal/lib/asset"
)

// step builds one folder. Its key is a hash of all inputs.
type step struct {
	name  string
	key   string
	build func(ctx context.Context, dir string) error
	// commands and libraries are required on the host: Debian packages by command or pkg-config
	// name.
	commands, libraries map[string]string
}

// planSteps returns the steps of the build. It builds nothing.
func (b *builder) planSteps(ctx context.Context) ([]step, error) {
	goVersion, err := b.runCommand(ctx, b.Source, b.Go, "env", "GOVERSION")
	if err != nil {
		return nil, fmt.Errorf("query the version of Go: %w", err)
	}

	for i := range b.modules {
		if err := b.resolveVersion(&b.modules[i]); err != nil {
			return nil, err
		}
	}

	requested, err := b.requestedModules()
	if err != nil {
		return nil, err
	}

	steps, err := b.planModules(goVersion, requested)
	if err != nil {
		return nil, err
	}

	layers, err := b.planDebianLayers(ctx, requested)
	if err != nil {
		return nil, err
	}

	steps = append(steps, layers...)
	for _, s := range steps {
		b.stepKeys = append(b.stepKeys, s.key)
		b.stepDirs[s.name] = b.stepDir(s)
	}

	return steps, nil
}

// planDebianLayers returns the steps of the layers of Debian's packages. An optional one that nobody has requested is left
// out, unless it was built before.
func (b *builder) planDebianLayers(ctx context.Context, requested map[string]bool) ([]step, error) {
	var steps []step
	for _, l := range debianLayers() {
		isOptional := b.optional[l.name] && !requested[l.name]
		if isOptional && !b.hasResultOf(l.name) {
			b.leaveOut(l.name) // without asking apt
			continue
		}

		s, err := b.planDebianLayer(ctx, l)
		if err != nil {
			return nil, err
		}

		if isOptional && !b.isCached(s) {
			b.leaveOut(l.name)
			continue
		}

		steps = append(steps, s)
	}

	return steps, nil
}

// planDebianLayer returns the step that unpacks the packages of a layer.
func (b *builder) planDebianLayer(ctx context.Context, l debianLayer) (step, error) {
	versions, err := b.queryDebianVersions(ctx, l)
	if err != nil {
		return step{}, err
	}

	b.versions[l.name] = upstreamVersion(versions)

	return step{
		name:     l.name,
		key:      hashParts(recipeVersion, l.revision, versions, b.arch),
		build:    func(ctx context.Context, dir string) error { return b.unpackDebianLayer(ctx, l, dir) },
		commands: map[string]string{"apt-get": "apt", "dpkg-deb": "dpkg"},
	}, nil
}

// planModules returns the steps of the modules. It leaves out the optional ones that are neither requested nor
// cached.
func (b *builder) planModules(goVersion string, requested map[string]bool) ([]step, error) {
	var steps []step

	for _, m := range b.modules {
		key, err := b.moduleCacheKey(m, goVersion)
		if err != nil {
			return nil, err
		}

		s := step{
			name:  m.Name,
			key:   key,
			build: func(ctx context.Context, dir string) error { return b.compileModule(ctx, m, dir) },
		}
		if b.optional[m.Name] && !requested[m.Name] && !b.isCached(s) {
			b.leaveOut(m.Name)
			continue
		}

		if m.CGO {
			s.commands = map[string]string{"gcc": "gcc", "pkg-config": "pkg-config"}
			s.libraries = map[string]string{"libseccomp": "libseccomp-dev"}
		}

		steps = append(steps, s)
	}

	return steps, nil
}

// hasResultOf reports whether an earlier run has built a step, also with other inputs.
func (b *builder) hasResultOf(name string) bool {
	found, err := filepath.Glob(filepath.Join(b.Out, "work", name+"-*"))

	return err == nil && len(found) > 0
}

func (b *builder) stepDir(s step) string {
	return filepath.Join(b.Out, "work", s.name+"-"+s.key[:16])
}

func (b *builder) isCached(s step) bool {
	_, err := os.Stat(b.stepDir(s))
	return err == nil
}

// buildStep runs a step unless it is cached. The folder gets its name when it is complete, so an
// interrupted run leaves no partial result.
func (b *builder) buildStep(ctx context.Context, s step) error {
	if b.isCached(s) {
		b.progress.skipStep()
		return nil
	}

	b.built = append(b.built, s.name)
	return b.progress.runStep(s.name, func() error {
		partial := b.stepDir(s) + ".partial"
		err := errors.Join(
			os.RemoveAll(partial),
			os.MkdirAll(partial, 0o755),
		)
		if err != nil {
			return fmt.Errorf("create the folder of %s: %w", s.name, err)
		}

		if err := s.build(ctx, partial); err != nil {
			return fmt.Errorf("build %s: %w", s.name, err)
		}

		if err := os.Rename(partial, b.stepDir(s)); err != nil {
			return fmt.Errorf("store the result of %s: %w", s.name, err)
		}

		return nil
	})
}

// resolveVersion reads the version of a module from its go.mod, and replaces the patterns in its
// linker flags.
func (b *builder) resolveVersion(m *moduleRecipe) error {
	if m.Pins != "" {
		raw, err := os.ReadFile(filepath.Join(b.Source, m.Name, "go.mod"))
		if err != nil {
			return fmt.Errorf("read the pinned version of %s: %w", m.Name, err)
		}

		pattern := regexp.MustCompile(`(?m)^\s*(?:require )?` + regexp.QuoteMeta(m.Pins) + ` v(\S+)`)
		found := pattern.FindSubmatch(raw)
		if found == nil {
			return fmt.Errorf("%s/go.mod does not require %s", m.Name, m.Pins)
		}

		m.Version = string(found[1])
	}

	if m.MinorHasMajor {
		release, err := releaseOfLibrary(m.Version)
		if err != nil {
			return fmt.Errorf("%s/go.mod: %w", m.Name, err)
		}

		m.Version = release
	}

	b.versions[m.Name] = m.Version
	major, rest, _ := strings.Cut(m.Version, ".")
	minor, _, _ := strings.Cut(rest, ".")
	replacer := strings.NewReplacer("{version}", m.Version, "{major}", major, "{minor}", minor)
	m.LDFlags = replacer.Replace(m.LDFlags)

	return nil
}

// releaseOfLibrary returns the release of a version of a module whose minor number has both numbers of the release: 3.16.0 for
// 0.316.0.
func releaseOfLibrary(version string) (string, error) {
	parts := strings.Split(version, ".")
	if len(parts) != 3 || parts[0] != "0" {
		return "", fmt.Errorf("version %s: want 0.<major and minor>.<patch>, such as 0.316.0", version)
	}

	both, err := strconv.Atoi(parts[1])
	if err != nil || both < 100 {
		return "", fmt.Errorf("version %s: the second number must have at least three digits, as in 0.316.0", version)
	}

	return fmt.Sprintf("%d.%d.%s", both/100, both%100, parts[2]), nil
}

// moduleCacheKey returns a hash of all inputs of a module's build: its recipe and files, the Go
// version and the architecture.
func (b *builder) moduleCacheKey(m moduleRecipe, goVersion string) (string, error) {
	recipe, err := json.Marshal(m)
	if err != nil {
		return "", fmt.Errorf("hash the recipe of %s: %w", m.Name, err)
	}

	parts := []string{recipeVersion, string(recipe), goVersion, b.arch}
	root := os.DirFS(filepath.Join(b.Source, m.Name))
	err = fs.WalkDir(root, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}

		raw, err := fs.ReadFile(root, path)
		parts = append(parts, path, string(raw))

		return err
	})
	if err != nil {
		return "", fmt.Errorf("hash the sources of %s: %w", m.Name, err)
	}

	return hashParts(parts...), nil
}

// compileModule builds the programs of a module in dir/bin, and copies its data to dir/data.
func (b *builder) compileModule(ctx context.Context, m moduleRecipe, dir string) error {
	bin := filepath.Join(dir, "bin")
	if err := os.Mkdir(bin, 0o755); err != nil {
		return err
	}

	if len(m.Added) > 0 {
		m.folder = filepath.Join(dir, "source")
		if err := b.copyPinnedModule(ctx, m); err != nil {
			return err
		}
	}

	if err := b.compileProgram(ctx, m, bin+"/", m.Packages...); err != nil {
		return err
	}

	for _, name := range slices.Sorted(maps.Keys(m.Tests)) {
		if err := b.compileProgram(ctx, m, filepath.Join(bin, name), m.Tests[name]); err != nil {
			return err
		}
	}

	for from, to := range m.Programs {
		if err := os.Rename(filepath.Join(bin, from), filepath.Join(bin, to)); err != nil {
			return err
		}
	}

	if len(m.Added) > 0 {
		if err := os.RemoveAll(m.folder); err != nil {
			return fmt.Errorf("remove the copy of %s: %w", m.Pins, err)
		}
	}

	return b.copyModuleData(ctx, m, dir)
}

// copyPinnedModule copies the source of the module that a recipe pins to the recipe's folder, and adds the files that it embeds
// but does not contain. The go command has checked the source against go.sum.
func (b *builder) copyPinnedModule(ctx context.Context, m moduleRecipe) error {
	ours := filepath.Join(b.Source, m.Name)
	if _, err := b.runCommand(ctx, ours, b.Go, "mod", "download", m.Pins); err != nil {
		return err
	}

	source, err := b.runCommand(ctx, ours, b.Go, "list", "-m", "-f", "{{.Dir}}", m.Pins)
	if err != nil {
		return err
	}

	if err := os.CopyFS(m.folder, os.DirFS(source)); err != nil {
		return fmt.Errorf("copy %s: %w", m.Pins, err)
	}

	for to, from := range m.Added {
		write := func(w io.Writer) error { return copyFile(w, filepath.Join(ours, from)) }
		if _, err := writeHashed(filepath.Join(m.folder, to), write); err != nil {
			return fmt.Errorf("add %s to %s: %w", to, m.Pins, err)
		}
	}

	return nil
}

// compileProgram builds packages of a module in output, which is a directory if it ends with a slash. Otherwise it is
// the test program of the one package.
func (b *builder) compileProgram(ctx context.Context, m moduleRecipe, output string, packages ...string) error {
	flags := "-s -w " + m.LDFlags
	cgo := "0"
	if m.CGO {
		flags += " -linkmode external -extldflags -static"
		cgo = "1"
	}

	command := []string{"build"}
	if !strings.HasSuffix(output, "/") {
		command = []string{"test", "-c", "-vet=off"} // vet takes as long as the build
	}

	options := []string{
		"-trimpath",
		"-buildvcs=false",
		"-tags",
		m.Tags,
		"-ldflags",
		strings.TrimSpace(flags),
		"-o",
		output,
	}

	cmd := exec.CommandContext(ctx, b.Go, slices.Concat(command, options, packages)...)
	cmd.Dir = cmp.Or(m.folder, filepath.Join(b.Source, m.Name))
	cmd.Env = append(slices.Clone(b.Env), "CGO_ENABLED="+cgo, "GOFLAGS=", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go %s in %s: %w\n%s", command[0], cmd.Dir, err, out)
	}

	return nil
}

// copyModuleData copies the data of a module's recipe from the source of its pinned module to dir/data.
func (b *builder) copyModuleData(ctx context.Context, m moduleRecipe, dir string) error {
	if len(m.Data) == 0 {
		return nil
	}

	source, err := b.runCommand(
		ctx,
		filepath.Join(b.Source, m.Name),
		b.Go, "list", "-m", "-f", "{{.Dir}}", m.Pins,
	)
	if err != nil {
		return err
	}

	for to, from := range m.Data {
		path := filepath.Join(dir, "data", to)
		write := func(w io.Writer) error { return copyFile(w, filepath.Join(source, from)) }
		if _, err := writeHashed(path, write); err != nil {
			return fmt.Errorf("copy %s of %s: %w", from, m.Pins, err)
		}
	}

	return nil
}

// removeStaleResults removes the results whose inputs have changed.
func (b *builder) removeStaleResults() error {
	entries, err := os.ReadDir(filepath.Join(b.Out, "work"))
	if err != nil {
		return fmt.Errorf("list the cached results: %w", err)
	}

	for _, e := range entries {
		path := filepath.Join(b.Out, "work", e.Name())
		keep := false
		for _, dir := range b.stepDirs {
			keep = keep || dir == path
		}

		if keep {
			continue
		}

		if err := os.RemoveAll(path); err != nil {
			return fmt.Errorf("remove a stale result: %w", err)
		}
	}

	return nil
}

// expandPattern replaces {version} and {arch} in a pattern.
func (b *builder) expandPattern(pattern, moduleName string) string {
	return strings.NewReplacer("{version}", b.versions[moduleName], "{arch}", b.arch).Replace(pattern)
}

// runCommand runs a command in dir and returns its standard output, with surrounding whitespace
// removed.
func (b *builder) runCommand(ctx context.Context, dir string, argv ...string) (string, error) {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...) //nolint:gosec // the commands of recipes
	cmd.Dir = dir
	cmd.Env = b.Env
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return "", fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, exit.Stderr)
	}

	if err != nil {
		return "", fmt.Errorf("%s: %w", strings.Join(argv, " "), err)
	}

	return strings.TrimSpace(string(out)), nil
}

// hashParts returns the SHA-256 of the parts, each preceded by its length.
func hashParts(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d:%s", len(p), p)
	}

	return hex.EncodeToString(h.Sum(nil))
}

// newCatalog returns a catalogue without files and images.
func (b *builder) newCatalog() asset.Catalog {
	return asset.Catalog{
		APIVersion:        asset.APIVersion,
		Kind:              asset.CatalogKind,
		FileRepository:    b.FileRepository,
		ContainerRegistry: b.ContainerRegistry,
	}
}
