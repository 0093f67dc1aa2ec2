// SPDX-License-Identifier: Apache-2.0

package signing

import (
	"bytes"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/crypto/ssh"
)

// CommitKey verifies signatures of commits.
type CommitKey struct{ key ssh.PublicKey }

// ParseCommitKey returns the SSH key of a line as it is in a .pub file.
func ParseCommitKey(line string) (CommitKey, error) {
	key, _, options, rest, err := ssh.ParseAuthorizedKey([]byte(line))

	switch {
	case err != nil:
		return CommitKey{}, errors.New("is not the public key of an SSH key")
	case len(options) > 0:
		return CommitKey{}, errors.New("has options")
	case strings.TrimSpace(string(rest)) != "":
		return CommitKey{}, errors.New("has something after its key")
	case !slices.Contains(commitKeyTypes(), key.Type()):
		return CommitKey{}, fmt.Errorf("has type %s: use one of %s", key.Type(), strings.Join(commitKeyTypes(), ", "))
	}

	return CommitKey{key: key}, nil
}

// commitKeyTypes are the types of keys that are accepted: no DSA, and no certificates, whose
// validity nobody would check.
func commitKeyTypes() []string {
	return []string{
		ssh.KeyAlgoED25519,
		ssh.KeyAlgoSKED25519,
		ssh.KeyAlgoECDSA256,
		ssh.KeyAlgoECDSA384,
		ssh.KeyAlgoECDSA521,
		ssh.KeyAlgoSKECDSA256,
		ssh.KeyAlgoRSA,
	}
}

// The constants of https://github.com/openssh/openssh-portable/blob/master/PROTOCOL.sshsig. git
// signs in the namespace of the same name.
const (
	signatureMagic   = "SSHSIG"
	signatureVersion = 1
	gitNamespace     = "git"
)

// sshSignature is an SSH signature after its magic.
type sshSignature struct {
	Version   uint32
	PublicKey []byte
	Namespace string
	Reserved  string
	Hash      string
	Signature []byte
}

// signedText is what an SSH signature is made of, after the magic.
type signedText struct {
	Namespace string
	Reserved  string
	Hash      string
	Sum       []byte
}

// VerifyCommit checks that one of the keys has signed a text in the namespace of git. armored is
// the signature as it is in a commit.
func VerifyCommit(keys []CommitKey, text []byte, armored string) error {
	block, _ := pem.Decode([]byte(armored))
	if block == nil || block.Type != "SSH SIGNATURE" {
		return errors.New("the signature is not an SSH signature")
	}

	body, found := bytes.CutPrefix(block.Bytes, []byte(signatureMagic))
	var parsed sshSignature
	if !found || ssh.Unmarshal(body, &parsed) != nil {
		return errors.New("the SSH signature is not valid")
	}

	return parsed.verify(keys, text)
}

// verify checks the signature of a text.
func (s sshSignature) verify(keys []CommitKey, text []byte) error {
	if s.Version != signatureVersion || s.Namespace != gitNamespace {
		return fmt.Errorf("the SSH signature has version %d and namespace %q, not %d and %q",
			s.Version, s.Namespace, signatureVersion, gitNamespace)
	}

	var sum []byte
	switch s.Hash {
	case "sha256":
		of := sha256.Sum256(text)
		sum = of[:]
	case "sha512":
		of := sha512.Sum512(text)
		sum = of[:]
	default:
		return fmt.Errorf("the SSH signature has the hash %q, not sha256 or sha512", s.Hash)
	}

	named := func(k CommitKey) bool { return bytes.Equal(k.key.Marshal(), s.PublicKey) }
	at := slices.IndexFunc(keys, named)
	if at < 0 {
		return ErrSignature
	}

	signature := &ssh.Signature{}
	if err := ssh.Unmarshal(s.Signature, signature); err != nil {
		return errors.New("the SSH signature is not valid")
	}

	// ssh-rsa stands for a signature with SHA-1.
	if signature.Format == ssh.KeyAlgoRSA {
		return errors.New("the SSH signature is one of SHA-1")
	}

	signed := append([]byte(signatureMagic), ssh.Marshal(signedText{
		Namespace: s.Namespace,
		Reserved:  s.Reserved,
		Hash:      s.Hash,
		Sum:       sum,
	})...)
	if err := keys[at].key.Verify(signed, signature); err != nil {
		return ErrSignature
	}

	return nil
}
