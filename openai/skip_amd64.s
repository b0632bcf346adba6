#include "textflag.h"

// func skipPlain(b []byte, i int) (at int, high bool)
TEXT ·skipPlain(SB), NOSPLIT, $0-41
	MOVQ b_base+0(FP), SI
	MOVQ b_len+8(FP), DX
	MOVQ i+24(FP), AX
	SUBQ $16, DX // the last place where a step can begin

	MOVQ       $0x2222222222222222, R8
	MOVQ       R8, X1
	PUNPCKLQDQ X1, X1 // 16 quotes
	MOVQ       $0x5c5c5c5c5c5c5c5c, R8
	MOVQ       R8, X2
	PUNPCKLQDQ X2, X2 // 16 backslashes
	MOVQ       $0x1f1f1f1f1f1f1f1f, R8
	MOVQ       R8, X3
	PUNPCKLQDQ X3, X3 // 16 times the last control character
	PXOR       X4, X4 // all bytes that were passed, one over the other

step:
	CMPQ     AX, DX
	JGT      done
	MOVOU    (SI)(AX*1), X0
	MOVO     X0, X5
	PCMPEQB  X1, X5 // X5: where there is a quote,
	MOVO     X0, X6
	PCMPEQB  X2, X6
	POR      X6, X5 // a backslash,
	MOVO     X0, X6
	PMINUB   X3, X6
	PCMPEQB  X0, X6
	POR      X6, X5 // or a control character: it is the lesser of the two
	PMOVMSKB X5, R8
	TESTL    R8, R8
	JNZ      done
	POR      X0, X4
	ADDQ     $16, AX
	JMP      step

done:
	PMOVMSKB X4, R9 // the highest bits
	MOVQ     AX, at+32(FP)
	TESTL    R9, R9
	SETNE    high+40(FP)
	RET
