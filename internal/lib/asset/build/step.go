// SPDX-License-Identifier: Apache-2.0

package build

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/lib/asset"
)

// step makes one folder from inputs that its key names completely.
type step struct {
	name  string
	key   string
	build func(ctx context.Context, dir string) error
	// needs are the programs and libraries of the host it is made with: command or pkg-config name → Debian package.
	commands, libraries map[string]string
}

// planSteps lists what is to be made. Nothing is built yet.
func (b *builder) planSteps(ctx context.Context) ([]step, error) {
	goVersion, err := b.runCommand(ctx, b.Source, b.Go, "env", "GOVERSION")
	if err != nil {
		return nil, fmt.Errorf("asking for Go's version: %w", err)
	}

	debian, err := b.queryDebianVersions(ctx)
	if err != nil {
		return nil, err
	}

	var steps []step

	for _, m := range b.modules {
		if err := b.resolveVersion(&m); err != nil {
			return nil, err
		}

		key, err := b.moduleCacheKey(m, goVersion)
		if err != nil {
			return nil, err
		}

		s := step{
			name:  m.Name,
			key:   key,
			build: func(ctx context.Context, dir string) error { return b.compileModule(ctx, m, dir) },
		}
		if m.CGO {
			s.commands = map[string]string{"gcc": "gcc", "pkg-config": "pkg-config"}
			s.libraries = map[string]string{"libseccomp": "libseccomp-dev"}
		}

		steps = append(steps, s)
	}

	steps = append(steps, step{
		name:     "nftables",
		key:      hashParts(recipeVersion, "with iptables", debian, b.arch),
		build:    b.unpackDebianPackages,
		commands: map[string]string{"apt-get": "apt", "dpkg-deb": "dpkg"},
	})

	for _, s := range steps {
		b.stepKeys = append(b.stepKeys, s.key)
		b.stepDirs[s.name] = b.stepDir(s)
	}

	return steps, nil
}

func (b *builder) stepDir(s step) string {
	return filepath.Join(b.Out, "work", s.name+"-"+s.key[:16])
}

func (b *builder) isCached(s step) bool {
	_, err := os.Stat(b.stepDir(s))
	return err == nil
}

// buildStep makes a step unless it is cached. The folder gets its name when it is complete, so a killed run leaves nothing half made.
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
			return fmt.Errorf("making room for %s: %w", s.name, err)
		}

		if err := s.build(ctx, partial); err != nil {
			return fmt.Errorf("building %s: %w", s.name, err)
		}

		if err := os.Rename(partial, b.stepDir(s)); err != nil {
			return fmt.Errorf("keeping %s: %w", s.name, err)
		}

		return nil
	})
}

// resolveVersion reads the version of a module from its go.mod, the only place that says it.
func (b *builder) resolveVersion(m *moduleRecipe) error {
	if m.Pins != "" {
		raw, err := os.ReadFile(filepath.Join(b.Source, m.Name, "go.mod"))
		if err != nil {
			return fmt.Errorf("reading what %s is pinned to: %w", m.Name, err)
		}

		found := regexp.MustCompile(
			`(?m)^\s*(?:require )?` + regexp.QuoteMeta(m.Pins) + ` v(\S+)`,
		).FindSubmatch(
			raw,
		)
		if found == nil {
			return fmt.Errorf("%s/go.mod requires no version of %s", m.Name, m.Pins)
		}

		m.Version = string(found[1])
	}

	b.versions[m.Name] = m.Version
	major, rest, _ := strings.Cut(m.Version, ".")
	minor, _, _ := strings.Cut(rest, ".")
	m.LDFlags = strings.NewReplacer(
		"{version}",
		m.Version,
		"{major}",
		major,
		"{minor}",
		minor,
	).Replace(
		m.LDFlags,
	)

	return nil
}

// moduleCacheKey hashes everything a module's programs are made from.
func (b *builder) moduleCacheKey(m moduleRecipe, goVersion string) (string, error) {
	recipe, err := json.Marshal(m)
	if err != nil {
		return "", fmt.Errorf("hashing the recipe of %s: %w", m.Name, err)
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
		return "", fmt.Errorf("hashing the sources of %s: %w", m.Name, err)
	}

	return hashParts(parts...), nil
}

// compileModule builds a module's programs into dir/bin.
func (b *builder) compileModule(ctx context.Context, m moduleRecipe, dir string) error {
	bin := filepath.Join(dir, "bin")
	if err := os.Mkdir(bin, 0o755); err != nil {
		return err
	}

	flags := "-s -w " + m.LDFlags
	cgo := "0"
	if m.CGO {
		flags = flags + " -linkmode external -extldflags -static"
		cgo = "1"
	}

	args := []string{
		"build",
		"-trimpath",
		"-buildvcs=false",
		"-tags",
		m.Tags,
		"-ldflags",
		strings.TrimSpace(flags),
		"-o",
		bin + "/",
	}

	cmd := exec.CommandContext(ctx, b.Go, append(args, m.Packages...)...)
	cmd.Dir = filepath.Join(b.Source, m.Name)
	cmd.Env = append(slices.Clone(b.Env), "CGO_ENABLED="+cgo, "GOFLAGS=", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build in %s: %w\n%s", cmd.Dir, err, out)
	}

	for from, to := range m.Programs {
		if err := os.Rename(filepath.Join(bin, from), filepath.Join(bin, to)); err != nil {
			return err
		}
	}

	return nil
}

// removeStaleResults removes the results of older inputs.
func (b *builder) removeStaleResults() error {
	entries, err := os.ReadDir(filepath.Join(b.Out, "work"))
	if err != nil {
		return fmt.Errorf("listing cached results: %w", err)
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
			return fmt.Errorf("removing an older result: %w", err)
		}
	}

	return nil
}

// expandPattern puts a version and the architecture into a pattern.
func (b *builder) expandPattern(pattern, moduleName string) string {
	return strings.NewReplacer("{version}", b.versions[moduleName], "{arch}", b.arch).Replace(pattern)
}

// runCommand runs a command and returns its standard output without white space at its ends.
func (b *builder) runCommand(ctx context.Context, dir string, argv ...string) (string, error) {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
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

// hashParts is the SHA-256 of parts, each set off by its length.
func hashParts(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d:%s", len(p), p)
	}

	return hex.EncodeToString(h.Sum(nil))
}

// newCatalog starts the catalogue of a build.
func (b *builder) newCatalog() asset.Catalog {
	return asset.Catalog{
		APIVersion:        asset.APIVersion,
		Kind:              asset.CatalogKind,
		FileRepository:    b.FileRepository,
		ContainerRegistry: b.ContainerRegistry,
	}
}
