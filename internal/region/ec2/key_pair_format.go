// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"bufio"
	"crypto/md5"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"regexp"
	"strings"

	"golang.org/x/crypto/ssh"
)

// The first and the last line of a public key in the form of RFC 4716.
const (
	firstLineRFC4716 = "---- BEGIN SSH2 PUBLIC KEY ----"
	lastLineRFC4716  = "---- END SSH2 PUBLIC KEY ----"
)

// parsePublicKey reads a public key in one of the forms that EC2 takes: a line of OpenSSH, RFC 4716, and DER in base64. EC2
// takes RSA and ED25519 keys only.
func parsePublicKey(material string) (ssh.PublicKey, error) {
	key, err := decodePublicKey(material)
	if err != nil || key.Type() != ssh.KeyAlgoRSA && key.Type() != ssh.KeyAlgoED25519 {
		return nil, newError(codeInvalidKeyFormat)
	}

	return key, nil
}

func decodePublicKey(material string) (ssh.PublicKey, error) {
	if strings.HasPrefix(strings.TrimSpace(material), firstLineRFC4716) {
		blob, err := decodeRFC4716(material)
		if err != nil {
			return nil, err
		}

		return ssh.ParsePublicKey(blob)
	}

	fields := strings.Fields(material)
	if len(fields) > 1 && strings.HasPrefix(fields[0], "ssh-") {
		return decodeOpenSSH(fields[0], fields[1])
	}

	der, err := base64.StdEncoding.DecodeString(strings.Join(fields, ""))
	if err != nil {
		return nil, fmt.Errorf("decode base64: %w", err)
	}

	parsed, err := x509.ParsePKIXPublicKey(der)
	if err != nil {
		return nil, fmt.Errorf("parse DER: %w", err)
	}

	return ssh.NewPublicKey(parsed)
}

func decodeOpenSSH(kind, encoded string) (ssh.PublicKey, error) {
	blob, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return nil, fmt.Errorf("decode base64: %w", err)
	}

	key, err := ssh.ParsePublicKey(blob)
	if err == nil && key.Type() != kind {
		return nil, fmt.Errorf("the key is of the type %s", key.Type())
	}

	return key, err
}

// decodeRFC4716 returns the key of a text in the form of RFC 4716, without its headers: lines with a colon, which go on in
// the next line after a backslash.
func decodeRFC4716(text string) ([]byte, error) {
	var encoded strings.Builder
	header := regexp.MustCompile(`^[^:]{1,64}:`)
	isHeader := false
	isEnded := false

	for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan() && !isEnded; {
		line := strings.TrimSpace(lines.Text())
		isHeader = isHeader || header.MatchString(line)

		switch {
		case line == lastLineRFC4716:
			isEnded = true
		case isHeader:
			isHeader = strings.HasSuffix(line, `\`)
		case line != firstLineRFC4716:
			encoded.WriteString(line)
		}
	}

	if !isEnded {
		return nil, fmt.Errorf("the line %q is missing", lastLineRFC4716)
	}

	return base64.StdEncoding.DecodeString(encoded.String())
}

// keyFingerprint returns the fingerprint of an imported key: of an RSA key the MD5 sum of its DER form, of an ED25519 key
// the SHA-256 sum.
func keyFingerprint(key ssh.PublicKey) (string, error) {
	if key.Type() == ssh.KeyAlgoED25519 {
		sum := sha256.Sum256(key.Marshal())
		return base64.StdEncoding.EncodeToString(sum[:]), nil
	}

	exported, ok := key.(ssh.CryptoPublicKey)
	if !ok {
		return "", fmt.Errorf("the key of type %s has no DER form", key.Type())
	}

	der, err := x509.MarshalPKIXPublicKey(exported.CryptoPublicKey())
	if err != nil {
		return "", fmt.Errorf("encode the key as DER: %w", err)
	}

	sum := md5.Sum(der)

	return strings.ReplaceAll(fmt.Sprintf("% x", sum[:]), " ", ":"), nil
}

// publicKeyLine returns a key as a line of OpenSSH, with the name of its key pair as the comment, as EC2 describes it.
func publicKeyLine(key ssh.PublicKey, name string) string {
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key))) + " " + name
}
