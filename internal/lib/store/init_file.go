// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"filippo.io/age"

	"github.com/slipway-k8s/slipway/internal/lib/diag"
)

// planFileInit returns the steps for a store in a folder. They create an age identity, either in a
// key file or encrypted with the passphrase in the settings.
func planFileInit(s Store, opts Options) ([]InitStep, error) {
	if opts.KeyFile == "" && opts.Passphrase == "" {
		return nil, diag.WithHint(errors.New("a state store in a folder needs a key for its secrets"),
			"set --state-key FILE, which is created if it does not exist, or set SLIPWAY_STATE_PASSPHRASE")
	}

	set := &Settings{Version: settingsVersion}
	identity := InitStep{
		Description: "age identity, encrypted with the passphrase",
		run:         func(context.Context) error { return createSealedIdentity(set, opts.Passphrase) },
	}
	if opts.KeyFile != "" {
		identity = InitStep{
			Description: "key file " + opts.KeyFile,
			run:         func(context.Context) error { return ensureKeyFile(set, opts.KeyFile) },
		}
	}

	return []InitStep{identity, newSettingsStep(s, set)}, nil
}

// ensureKeyFile reads the identity from the key file, or creates the file. It never overwrites a
// file.
func ensureKeyFile(set *Settings, file string) error {
	text, err := readKeyFile(file)
	if err == nil {
		id, err := parseIdentity(text)
		if err != nil {
			return err
		}

		set.Recipient = id.Recipient().String()

		return nil
	}

	if !errors.Is(err, os.ErrNotExist) {
		return err
	}

	id, err := age.GenerateX25519Identity()
	if err != nil {
		return err
	}

	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}

	out, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}

	_, err = fmt.Fprintf(
		out,
		"# slipway state key; without it the state's secrets are lost\n# public key: %s\n%s\n",
		id.Recipient(),
		id,
	)

	set.Recipient = id.Recipient().String()

	return errors.Join(err, out.Sync(), out.Close())
}

func createSealedIdentity(set *Settings, passphrase string) error {
	id, err := age.GenerateX25519Identity()
	if err != nil {
		return err
	}

	to, err := age.NewScryptRecipient(passphrase)
	if err != nil {
		return err
	}

	set.Recipient = id.Recipient().String()
	set.Identity, err = ageEncrypt([]byte(id.String()), to)

	return err
}
