// SPDX-License-Identifier: Apache-2.0

package build

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// prepareSource returns the folder in which a module is compiled: that of its recipe. If the recipe
// has overlays, it is a copy in dir, in which copies of the other modules have our files in the place
// of theirs: Go refuses other ways to change a module.
func (b *builder) prepareSource(ctx context.Context, m moduleRecipe, dir string) (string, error) {
	folder := filepath.Join(b.Source, m.Name)
	if len(m.Overlays) == 0 {
		return folder, nil
	}

	source := filepath.Join(dir, "source")
	if err := os.CopyFS(source, os.DirFS(folder)); err != nil {
		return "", fmt.Errorf("copy %s: %w", folder, err)
	}

	for i, o := range m.Overlays {
		root, err := b.runCommand(ctx, folder, b.Go, "list", "-m", "-f", "{{.Dir}}", o.Module)
		if err != nil {
			return "", fmt.Errorf("find the source of %s: %w", o.Module, err)
		}

		place := fmt.Sprintf("replaced-%d", i) // the path is a part of the program's build information
		if err := o.apply(folder, root, filepath.Join(source, place)); err != nil {
			return "", fmt.Errorf("replace %s of %s: %w", o.Path, o.Module, err)
		}

		replacement := "-replace=" + o.Module + "=./" + place
		if _, err := b.runCommand(ctx, source, b.Go, "mod", "edit", replacement); err != nil {
			return "", err
		}
	}

	return source, nil
}

// apply copies the module at root to target, with the file of the recipe's folder in the place of its
// own. The module must have one, unless the file is added: otherwise a later version has changed it.
func (o sourceOverlay) apply(folder, root, target string) error {
	if err := os.CopyFS(target, os.DirFS(root)); err != nil {
		return err
	}

	path := filepath.Join(target, o.Path)
	_, err := os.Stat(path)
	switch {
	case o.IsAdded && err == nil:
		return fmt.Errorf("%s: %w", path, os.ErrExist)
	case !o.IsAdded && err != nil:
		return err
	}

	write := func(w io.Writer) error { return copyFile(w, filepath.Join(folder, o.File)) }
	_, err = writeHashed(path, write)

	return err
}
